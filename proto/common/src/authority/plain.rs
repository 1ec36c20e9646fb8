//! Header blocks without Huffman coding. The decoder rebuilds its table of codes for each coded string, which takes longer than the rest of
//! a call, so strings are decoded before it sees them.

use super::rewrite::write_string;

/// Longest encoding of an integer, bytes; the decoder refuses longer ones.
const MAX_INTEGER: usize = 5;
const HUFFMAN: u8 = 0x80;

/// Returns the same fields with uncoded strings. None if the block does not consist of whole fields, or a string is not validly coded: the
/// decoder then gets the original and reports the error.
pub(super) fn plain(block: &[u8]) -> Option<Vec<u8>> {
    let mut plain = Vec::with_capacity(2 * block.len());
    let mut rest = block;
    while let Some(first) = rest.first() {
        // RFC 7541, section 6: indexed field, literal with indexing, table size update, literal without indexing.
        let (prefix, is_literal) = match first.leading_zeros() {
            0 => (7, false),
            1 => (6, true),
            2 => (5, false),
            _ => (4, true),
        };
        let (index, used) = integer(rest, prefix)?;
        let (integer, after) = rest.split_at(used);
        plain.extend_from_slice(integer);
        rest = after;
        if is_literal {
            // The name, unless it is indexed, and the value.
            for _ in 0..if index == 0 { 2 } else { 1 } {
                rest = string(rest, &mut plain)?;
            }
        }
    }
    Some(plain)
}

/// Reads an integer (RFC 7541, section 5.1); returns it and its length in bytes. None if it is incomplete or longer than `MAX_INTEGER`.
fn integer(input: &[u8], prefix: u32) -> Option<(usize, usize)> {
    let most = (1_usize << prefix) - 1;
    let mut value = usize::from(*input.first()?) & most;
    if value < most {
        return Some((value, 1));
    }
    for (at, byte) in input.iter().enumerate().take(MAX_INTEGER).skip(1) {
        value += usize::from(byte & 0x7f) << (7 * (at - 1));
        if byte & 0x80 == 0 {
            return Some((value, at + 1));
        }
    }
    None
}

/// Appends a string uncoded to `plain` (RFC 7541, section 5.2); returns the input after it.
fn string<'a>(input: &'a [u8], plain: &mut Vec<u8>) -> Option<&'a [u8]> {
    let (len, used) = integer(input, 7)?;
    let (string, after) = input.get(used..)?.split_at_checked(len)?;
    if input.first()? & HUFFMAN == 0 {
        write_string(string, plain);
    } else {
        write_string(&decoded(string)?, plain);
    }
    Some(after)
}

/// Decodes a Huffman-coded string; None if its padding is invalid, which the library accepts: encoding the text again does not give the
/// input then.
fn decoded(string: &[u8]) -> Option<Vec<u8>> {
    let (mut text, mut again) = (Vec::with_capacity(2 * string.len()), Vec::new());
    httlib_huffman::decode(string, &mut text, httlib_huffman::DecoderSpeed::FiveBits).ok()?;
    httlib_huffman::encode(&text, &mut again).ok()?;
    (again == string).then_some(text)
}

#[cfg(test)]
mod tests {
    use loona_hpack::Decoder;
    use proptest::{collection::vec, prelude::*, sample::Index};

    use super::*;

    type Field = (Vec<u8>, Vec<u8>);

    fn fields(block: &[u8]) -> Result<Vec<Field>, ()> {
        Decoder::new().decode(block).map_err(|_| ())
    }

    /// `custom-key: custom-value` and others of RFC 7541, C.4 and C.6, in the ways that a field can be written.
    const CODED: [&[u8]; 4] = [
        b"\x82\x86\x84\x41\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff",
        b"\x40\x88\x25\xa8\x49\xe9\x5b\xa9\x7d\x7f\x89\x25\xa8\x49\xe9\x5b\xb8\xe8\xb4\xbf",
        b"\x00\x88\x25\xa8\x49\xe9\x5b\xa9\x7d\x7f\x03abc",
        b"\x3f\xe1\x1f\x14\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff\xbe",
    ];

    #[test]
    fn the_same_fields_come_out_and_no_string_is_coded() {
        for block in &CODED[..3] {
            let plain = plain(block).unwrap();
            assert_eq!(fields(&plain), fields(block));
            assert!(plain.len() > block.len());
            assert_eq!(super::plain(&plain).unwrap(), plain, "once more");
        }
        // An index that was not inserted.
        let plain = plain(CODED[3]).unwrap();
        assert_eq!((fields(&plain), fields(CODED[3])), (Err(()), Err(())));
    }

    #[test]
    fn every_byte_is_decoded_as_the_decoder_does() {
        let text: Vec<u8> = (0..=255).collect();
        let mut coded = Vec::new();
        httlib_huffman::encode(&text, &mut coded).unwrap();
        let mut block = b"\x00\x01x\xff".to_vec();
        let rest = coded.len() - 127;
        block.extend([rest as u8 | 0x80, (rest >> 7) as u8]);
        block.extend(coded);
        assert_eq!(fields(&block), Ok(vec![(b"x".to_vec(), text)]));
        assert_eq!(fields(&plain(&block).unwrap()), fields(&block));
    }

    proptest! {
        #[test]
        fn whatever_is_changed_in_a_block_means_the_same(
            of in 0..CODED.len(), changes in vec((any::<Index>(), any::<u8>()), 0..4), more in vec(any::<u8>(), 0..24)
        ) {
            let mut block = [CODED[of], &more].concat();
            for (at, byte) in changes {
                let at = at.index(block.len());
                block[at] = byte;
            }
            if let Some(plain) = plain(&block) {
                prop_assert_eq!(fields(&plain), fields(&block));
            }
        }
    }

    #[test]
    fn what_is_cut_off_or_badly_padded_is_left_to_the_decoder() {
        for block in CODED {
            for end in 1..block.len() {
                if let Some(plain) = plain(&block[..end]) {
                    assert_eq!(fields(&plain), fields(&block[..end]), "{end}");
                }
            }
        }
        for padded in [
            &b"\x00\x01x\x81\x00"[..],
            b"\x00\x01x\x81\x18",
            b"\x00\x01x\x82\x1f\xff",
            b"\x00\x01x\x84\xff\xff\xff\xff",
            b"\xff\xff\xff\xff\xff\xff\xff\x01",
        ] {
            assert!(plain(padded).is_none(), "{padded:?}");
            assert!(fields(padded).is_err(), "{padded:?}");
        }
    }
}
