//! Tests of a served drive through a client and its file.

use std::{fs, io::Read, os::unix::net::UnixStream, path::PathBuf, time::Instant};

use tempfile::TempDir;

use super::{
    client::{Client, TRIM, ZEROES},
    *,
};

const BYTES: u64 = 4 << 20;
const A: [u8; 512] = [0xaa; 512];
const B: [u8; 512] = [0xbb; 512];
const EIO: u32 = 5;

struct Stand {
    drive: NbdDrive,
    _dir: TempDir,
}

impl Stand {
    fn with(options: &NbdOptions) -> Self {
        Self::sized(BYTES, options)
    }

    fn sized(bytes: u64, options: &NbdOptions) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("medium");
        File::create(&file).unwrap().set_len(bytes).unwrap();
        let drive = NbdDrive::serve(&file, &dir.path().join("socket"), options).unwrap();
        Self { drive, _dir: dir }
    }

    fn new() -> Self {
        Self::with(&NbdOptions::default())
    }

    fn client(&self) -> Client {
        Client::connect(&self.drive)
    }

    /// Returns 512 bytes of the medium.
    fn medium(&self, sector: usize) -> Vec<u8> {
        fs::read(self.drive.file()).unwrap()[sector * 512..][..512].to_vec()
    }

    /// Returns the numbers of the sectors that are not zero on the medium.
    fn written(&self) -> Vec<usize> {
        let medium = fs::read(self.drive.file()).unwrap();
        let sectors = medium.chunks(512).enumerate();
        sectors
            .filter(|(_, sector)| sector.iter().any(|&byte| byte != 0))
            .map(|(number, _)| number)
            .collect()
    }

    fn unflushed(&self) -> (u64, u64) {
        let stats = self.drive.stats();
        (stats.unflushed_sectors, stats.unflushed_writes)
    }
}

#[test]
fn a_cut_loses_what_was_not_flushed_and_nothing_else() {
    let stand = Stand::new();
    let mut client = stand.client();
    client.write(0, &A).unwrap();
    client.flush().unwrap();
    client.write(0, &B).unwrap();
    client.write(1024, &B).unwrap();
    assert_eq!(client.read(0, 512).unwrap(), B, "reads see the cache");
    assert_eq!(stand.medium(0), A);
    assert_eq!(stand.unflushed(), (2, 2));
    let cut = stand.drive.cut(0.0, 1).unwrap();
    assert_eq!((cut.writes, cut.sectors, cut.kept), (2, 2, 0));
    assert_eq!(stand.medium(0), A);
    assert_eq!(stand.written(), [0]);
    assert_eq!(stand.unflushed(), (0, 0));
}

#[test]
fn flush_and_fua_persist() {
    let stand = Stand::new();
    let mut client = stand.client();
    client.write(0, &[A, A].concat()).unwrap();
    client.write_fua(512, &B).unwrap();
    assert_eq!(stand.unflushed(), (1, 1), "FUA is of its own sectors only");
    assert_eq!(stand.medium(1), B);
    client.write(4096, &A).unwrap();
    client.flush().unwrap();
    assert_eq!(stand.unflushed(), (0, 0));
    stand.drive.cut(0.0, 1).unwrap();
    assert_eq!(stand.written(), [0, 1, 8]);
    assert_eq!(stand.medium(1), B);
}

#[test]
fn an_older_unflushed_write_never_comes_back_over_a_fua_write() {
    let stand = Stand::new();
    let mut client = stand.client();
    client.write(0, &[A, A, A].concat()).unwrap();
    client.write_fua(512, &B).unwrap();
    assert_eq!(client.read(0, 1536).unwrap(), [A, B, A].concat());
    let cut = stand.drive.cut(1.0, 1).unwrap();
    assert_eq!((cut.sectors, cut.kept), (2, 2));
    assert_eq!(stand.medium(1), B);
    assert_eq!(stand.medium(2), A);
}

#[test]
fn a_torn_write_is_torn_at_512_bytes_the_same_way_for_the_same_seed() {
    let kept = |seed, keep| {
        let stand = Stand::new();
        let mut client = stand.client();
        client.write(0, &[0xaa; 100 * 512]).unwrap();
        client.write(1 << 20, &[0xbb; 100 * 512]).unwrap();
        let cut = stand.drive.cut(keep, seed).unwrap();
        let written = stand.written();
        assert_eq!(cut.sectors, 200);
        assert_eq!(cut.kept, written.len() as u64);
        written
    };
    assert_eq!(kept(1, 0.0).len(), 0);
    assert_eq!(kept(1, 1.0).len(), 200);
    let half = kept(7, 0.5);
    assert!((60..140).contains(&half.len()), "{}", half.len());
    assert_eq!(kept(7, 0.5), half);
    assert_ne!(kept(8, 0.5), half);
}

#[test]
fn a_cut_that_loses_the_later_of_two_writes_leaves_the_earlier() {
    let outcomes: Vec<u8> = (0..64)
        .map(|seed| {
            let stand = Stand::new();
            let mut client = stand.client();
            client.write(0, &A).unwrap();
            client.write(0, &B).unwrap();
            assert_eq!(stand.unflushed(), (1, 2));
            stand.drive.cut(0.5, seed).unwrap();
            stand.medium(0)[0]
        })
        .collect();
    for expected in [0, 0xaa, 0xbb] {
        assert!(outcomes.contains(&expected), "{outcomes:x?}");
    }
}

#[test]
fn a_cut_drive_answers_nothing_until_its_power_is_back() {
    let stand = Stand::new();
    let mut client = stand.client();
    stand.drive.cut(0.0, 1).unwrap();
    client.send(0, 0, 0, 512, &[]);
    assert!(!client.answered_within(Duration::from_millis(200)));
    assert!(matches!(stand.drive.cut(0.0, 1), Err(NbdError::Off)));
    stand.drive.power_on();
    assert!(client.answer(0, 512).is_err(), "the old connection is over");
    stand.client().write(0, &A).unwrap();
}

#[test]
fn a_cut_after_n_writes_comes_after_the_nth() {
    let stand = Stand::new();
    let mut client = stand.client();
    client.write(0, &A).unwrap();
    stand.drive.cut_after_writes(3, 1.0, 1).unwrap();
    client.write(512, &A).unwrap();
    client.read(0, 512).unwrap();
    client.without_data(ZEROES, 0, 512).unwrap();
    assert_eq!(stand.drive.wait_cut(Duration::ZERO), None);
    client.send(0, 1, 1024, 512, &A);
    let cut = stand.drive.wait_cut(Duration::from_secs(10)).unwrap();
    assert_eq!((cut.writes, cut.kept), (4, 4));
    assert_eq!(stand.written(), [1, 2]);
    assert!(!client.answered_within(Duration::from_millis(100)));
}

#[test]
fn zeroes_are_volatile_and_a_trim_does_as_was_chosen() {
    for trim in [Trim::Keeps, Trim::Zeroes] {
        let options = NbdOptions {
            trim,
            ..NbdOptions::default()
        };
        let stand = Stand::with(&options);
        let mut client = stand.client();
        client.write(0, &[0xaa; 2048]).unwrap();
        client.flush().unwrap();
        client.without_data(ZEROES, 0, 512).unwrap();
        assert_eq!(client.read(0, 512).unwrap(), [0; 512]);
        client.without_data(TRIM, 512, 512).unwrap();
        let after = [if trim == Trim::Keeps { 0xaa } else { 0 }; 512];
        assert_eq!(client.read(512, 512).unwrap(), after);
        assert_eq!(stand.written(), [0, 1, 2, 3]);
        client.flush().unwrap();
        let left = [1, 2, 3].map(|sector| stand.medium(sector)[0]);
        assert_eq!(left, [after[0], 0xaa, 0xaa]);
        assert_eq!(stand.medium(0), [0; 512]);
    }
}

#[test]
fn more_zeroes_than_the_cache_holds_leave_only_the_last_of_them_unflushed() {
    const SIZE: u64 = 256 << 20;
    let stand = Stand::sized(SIZE, &NbdOptions::default());
    let mut client = stand.client();
    for offset in [0, SIZE / 2, SIZE - 512] {
        client.write(offset, &A).unwrap();
    }
    client.flush().unwrap();
    client.without_data(ZEROES, 0, SIZE as u32).unwrap();
    assert_eq!(stand.unflushed(), ((64 << 20) / 512, 1));
    stand.drive.cut(0.0, 1).unwrap();
    assert_eq!(stand.written(), [usize::try_from(SIZE / 512 - 1).unwrap()]);
}

#[test]
fn a_full_cache_writes_its_oldest_to_the_medium() {
    let stand = Stand::sized(128 << 20, &NbdOptions::default());
    let mut client = stand.client();
    let block = vec![0xaa; 1 << 20];
    for number in 0..70 {
        client.write(number << 20, &block).unwrap();
    }
    assert_eq!(stand.unflushed(), ((64 << 20) / 512, 64));
    assert_eq!(client.read(69 << 20, 512).unwrap(), A);
    stand.drive.cut(0.0, 1).unwrap();
    assert_eq!(stand.written().len(), (6 << 20) / 512);
}

#[test]
fn without_a_volatile_cache_a_write_is_on_the_medium_when_answered() {
    let options = NbdOptions {
        volatile: false,
        ..NbdOptions::default()
    };
    let stand = Stand::with(&options);
    let mut client = stand.client();
    assert_eq!(client.flags & 4, 0, "FLUSH is not offered");
    client.write(0, &A).unwrap();
    assert_eq!(stand.medium(0), A);
    stand.drive.set_volatile(true).unwrap();
    assert_eq!(stand.client().flags & 12, 12, "FLUSH and FUA are offered");
    client.write(512, &A).unwrap();
    assert_eq!(stand.written(), [0]);
    stand.drive.set_volatile(false).unwrap();
    assert_eq!(stand.written(), [0, 1]);
}

#[test]
fn a_hung_drive_answers_after_resume_and_meanwhile_does_nothing() {
    let stand = Stand::new();
    let mut client = stand.client();
    stand.drive.hang();
    client.send(0, 1, 0, 512, &A);
    assert!(stand.drive.wait_pending(1, Duration::from_secs(10)));
    assert!(!client.answered_within(Duration::from_millis(200)));
    assert_eq!(stand.unflushed(), (0, 0));
    stand.drive.resume();
    client.answer(0, 0).unwrap().unwrap();
    assert_eq!(stand.unflushed(), (1, 1));
    assert_eq!(stand.drive.stats().pending, 0);
}

#[test]
fn a_hung_drive_can_die_be_cut_and_be_dropped() {
    for end in [
        (|stand: &Stand| {
            stand.drive.die();
            let mut turned_away = UnixStream::connect(stand.drive.socket()).unwrap();
            assert_eq!(turned_away.read(&mut [0]).unwrap(), 0);
            stand.drive.power_on();
        }) as fn(&Stand),
        |stand| {
            stand.drive.cut(0.0, 1).unwrap();
            stand.drive.power_on();
        },
    ] {
        let stand = Stand::new();
        let mut client = stand.client();
        stand.drive.hang();
        client.send(0, 1, 0, 512, &A);
        assert!(stand.drive.wait_pending(1, Duration::from_secs(10)));
        end(&stand);
        assert!(client.answer(0, 0).is_err());
        assert_eq!(stand.unflushed(), (0, 0));
        stand.drive.hang();
        let mut again = stand.client();
        again.send(0, 1, 0, 512, &A);
        assert!(stand.drive.wait_pending(1, Duration::from_secs(10)));
        let socket: PathBuf = stand.drive.socket().to_owned();
        drop(stand);
        assert!(again.answer(0, 0).is_err());
        assert!(!socket.exists());
    }
}

#[test]
fn errors_are_at_their_sectors_for_their_direction_and_nowhere_else() {
    let stand = Stand::new();
    let mut client = stand.client();
    let bad = |sectors, reads, writes| BadSectors {
        sectors,
        reads,
        writes,
    };
    stand.drive.fail(bad(10..12, true, false));
    stand.drive.fail(bad(20..21, false, true));
    for sector in 0..32 {
        let read = client.read(sector * 512, 512);
        let wrote = client.write(sector * 512, &A);
        let expected_read = if (10..12).contains(&sector) {
            Some(EIO)
        } else {
            None
        };
        let expected_write = if sector == 20 { Some(EIO) } else { None };
        assert_eq!(
            (read.err(), wrote.err()),
            (expected_read, expected_write),
            "{sector}"
        );
    }
    assert_eq!(
        client.read(0, 8192),
        Err(EIO),
        "one bad sector fails the request"
    );
    assert_eq!(client.without_data(ZEROES, 20 * 512, 512), Err(EIO));
    stand.drive.fail_flushes(true);
    assert_eq!(client.flush(), Err(EIO));
    assert_eq!(stand.drive.stats().unflushed_sectors, 31);
    stand.drive.heal();
    client.read(0, 8192).unwrap();
    client.flush().unwrap();
    assert_eq!(stand.written().len(), 31);
    assert_eq!(stand.drive.stats().failed, 6);
}

#[test]
fn a_throttled_drive_takes_its_time_until_it_is_fast_again() {
    let stand = Stand::new();
    let mut client = stand.client();
    stand.drive.throttle(Some(Throttle {
        bytes_per_second: Some(1 << 20),
        latency: Duration::from_millis(50),
        ..Throttle::default()
    }));
    let start = Instant::now();
    client.write(0, &[0xaa; 256 << 10]).unwrap();
    client.read(0, 256 << 10).unwrap();
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(600), "{took:?}");
    stand.drive.throttle(Some(Throttle {
        latency: Duration::from_secs(3600),
        read_latency: Some(Duration::ZERO),
        ..Throttle::default()
    }));
    client.read(0, 4096).unwrap();
    stand.drive.throttle(Some(Throttle {
        bytes_per_second: Some(1),
        ..Throttle::default()
    }));
    client.send(0, 0, 0, 4096, &[]);
    assert!(!client.answered_within(Duration::from_millis(100)));
    stand.drive.throttle(None);
    assert!(client.answered_within(Duration::from_secs(10)));
}

#[test]
fn everything_is_counted_and_noted() {
    let stand = Stand::new();
    let mut client = stand.client();
    assert_eq!(client.bytes, BYTES);
    client.write(0, &[0xaa; 1024]).unwrap();
    client.write_fua(0, &A).unwrap();
    client.read(0, 4096).unwrap();
    client.without_data(TRIM, 0, 512).unwrap();
    client.without_data(ZEROES, 0, 512).unwrap();
    client.flush().unwrap();
    let expected = Stats {
        reads: 1,
        writes: 2,
        flushes: 1,
        fua: 1,
        trims: 1,
        zeroes: 1,
        bytes_read: 4096,
        bytes_written: 1536,
        connections: 1,
        ..Stats::default()
    };
    assert_eq!(stand.drive.stats(), expected);
    let last: Vec<Command> = stand
        .drive
        .log(2)
        .iter()
        .map(|entry| entry.command)
        .collect();
    assert_eq!(last, [Command::WriteZeroes, Command::Flush]);
    let fua: Vec<bool> = stand.drive.log(9).iter().map(|entry| entry.fua).collect();
    assert_eq!(fua, [false, true, false, false, false, false]);
}

#[test]
fn a_drive_of_4096_byte_sectors_refuses_less_and_is_torn_at_512() {
    let options = NbdOptions {
        sector: 4096,
        ..NbdOptions::default()
    };
    let stand = Stand::with(&options);
    let mut client = stand.client();
    assert!(client.write(512, &[0xaa; 4096]).is_err());
    assert!(client.read(0, 512).is_err());
    client.write(4096, &[0xaa; 4096]).unwrap();
    let cut = stand.drive.cut(0.5, 3).unwrap();
    assert_eq!(cut.sectors, 8);
    assert!((1..8).contains(&cut.kept), "{cut:?}");
}

#[test]
fn a_request_beyond_the_end_is_refused() {
    let stand = Stand::new();
    let mut client = stand.client();
    assert!(client.read(BYTES - 512, 1024).is_err());
    assert!(client.write(BYTES, &A).is_err());
    assert!(client.without_data(ZEROES, u64::MAX - 511, 512).is_err());
    assert_eq!(stand.unflushed(), (0, 0));
}

#[test]
fn two_drives_do_not_disturb_each_other() {
    let (one, two) = (Stand::new(), Stand::new());
    let (mut to_one, mut to_two) = (one.client(), two.client());
    one.drive.hang();
    to_one.send(0, 1, 0, 512, &A);
    assert!(one.drive.wait_pending(1, Duration::from_secs(10)));
    to_two.write(0, &B).unwrap();
    one.drive.cut(0.0, 1).unwrap();
    to_two.write(512, &B).unwrap();
    assert_eq!(two.unflushed(), (2, 2));
    to_two.flush().unwrap();
    assert_eq!(two.written(), [0, 1]);
    assert_eq!(one.written(), [0usize; 0]);
}
