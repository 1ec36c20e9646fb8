//! Parsing of snapshot requests.

use super::*;

fn request(parameters: &[(&str, &str)]) -> csi::CreateSnapshotRequest {
    let parameters = parameters
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    csi::CreateSnapshotRequest {
        name: "snapshot-1".into(),
        source_volume_id: "v@n".into(),
        parameters: parameters.collect(),
        ..csi::CreateSnapshotRequest::default()
    }
}

#[test]
fn an_agent_parses_from_the_controllers_request_what_the_controller_parsed() {
    for (parameters, percent, least, most) in [
        (&[("mostReserve", "2GB")][..], 20, 0, Some(2_000_000_000)),
        (&[], 20, 0, None),
        (
            &[("reserve", "100%"), ("leastReserve", "1 GiB")],
            100,
            1 << 30,
            None,
        ),
        (
            &[
                ("reserve", "1%"),
                ("leastReserve", "64MiB"),
                ("mostReserve", "64MiB"),
                ("csi.storage.k8s.io/volumesnapshot/name", "s"),
                ("csi.storage.k8s.io/volumesnapshot/namespace", "n"),
                ("csi.storage.k8s.io/volumesnapshotcontent/name", "c"),
            ],
            1,
            64 << 20,
            Some(64 << 20),
        ),
    ] {
        let requested = NewSnapshot::try_from(request(parameters)).unwrap();
        let reserve = Reserve {
            percent,
            least,
            most,
        };
        assert_eq!(requested.reserve, reserve, "{parameters:?}");
        let wire = requested.agent_request(&requested.volume_id);
        assert_eq!(NewSnapshot::try_from(wire), Ok(requested));
    }
}

#[test]
fn a_snapshot_has_an_age_limit_of_a_week_unless_its_class_sets_another_or_none() {
    const DAY: u64 = 24 * 3600;
    for (parameters, max_age) in [
        (&[("maxAge", "1m")][..], Some(60)),
        (&[], Some(7 * DAY)),
        (&[("maxAge", "36h")], Some(36 * 3600)),
        (&[("maxAge", "7d12h")], Some(7 * DAY + 12 * 3600)),
        (&[("maxAge", "90500ms")], Some(90)),
        (&[("maxAge", "none")], None),
    ] {
        let requested = NewSnapshot::try_from(request(parameters)).unwrap();
        assert_eq!(requested.max_age, max_age, "{parameters:?}");
        let wire = requested.agent_request("v@n");
        assert_eq!(wire.max_age_seconds, Some(max_age.unwrap_or(0)));
        assert_eq!(NewSnapshot::try_from(wire), Ok(requested));
    }
    // A command line without an age limit.
    let wire = agent::CreateSnapshotRequest {
        name: "s".into(),
        volume_id: "v".into(),
        ..agent::CreateSnapshotRequest::default()
    };
    let parsed = NewSnapshot::try_from(wire).unwrap();
    assert_eq!(parsed.max_age, Some(7 * DAY));
}

#[test]
fn a_parameter_that_is_unknown_or_cannot_be_used_is_refused_with_what_to_write() {
    for (parameters, text) in [
        (&[("reserve", "0%")][..], "from 1% to 100%"),
        (&[("reserve", "101%")], "from 1% to 100%"),
        (&[("reserve", "20")], "from 1% to 100%"),
        (&[("reserve", "+20%")], "from 1% to 100%"),
        (&[("reserve", "2.5%")], "from 1% to 100%"),
        (&[("reserve", "%")], "from 1% to 100%"),
        (&[("reserve", "")], "from 1% to 100%"),
        (&[("leastReserve", "1G")], "like 1GiB"),
        (&[("leastReserve", "1024")], "like 1GiB"),
        (&[("leastReserve", "0GiB")], "like 1GiB"),
        (&[("mostReserve", "GiB")], "like 1GiB"),
        (&[("mostReserve", "99999PiB")], "like 1GiB"),
        (&[("mostReserve", "-1GiB")], "like 1GiB"),
        (&[("maxAge", "59s")], "of at least 1 minute, like 36h or 7d"),
        (&[("maxAge", "0s")], "of at least 1 minute"),
        (&[("maxAge", "7")], "of at least 1 minute"),
        (&[("maxAge", "")], "of at least 1 minute"),
        (&[("maxAge", "never")], "or none to keep snapshots"),
        (&[("maxAge", "99999999999999d")], "of at least 1 minute"),
        (
            &[("leastReserve", "2GiB"), ("mostReserve", "1GiB")],
            "mostReserve 1 GiB is less than leastReserve 2 GiB",
        ),
        (
            &[("Reserve", "20%")],
            "\"Reserve\" is not known; the parameters are reserve, leastReserve, mostReserve, maxAge",
        ),
        (&[("byHand", "true")], "\"byHand\" is not known"),
    ] {
        let refused = NewSnapshot::try_from(request(parameters)).unwrap_err();
        let refused = refused.to_string();
        assert!(refused.contains(text), "{refused}");
        assert!(refused.contains("VolumeSnapshotClass"), "{refused}");
    }
}

#[test]
fn a_name_and_a_volume_are_required() {
    let edited = |edit: fn(&mut csi::CreateSnapshotRequest)| {
        let mut request = request(&[]);
        edit(&mut request);
        NewSnapshot::try_from(request).unwrap_err()
    };
    let missing = |field| InvalidRequest::Missing { field };
    assert_eq!(edited(|r| r.name.clear()), missing("name"));
    let no_volume = edited(|r| r.source_volume_id.clear());
    assert_eq!(no_volume, missing("source_volume_id"));
    let long = edited(|r| r.name = "x".repeat(129));
    assert!(matches!(long, InvalidRequest::TooLong { .. }));
}

#[test]
fn an_agent_refuses_a_field_in_the_words_of_its_own_protocol() {
    type Change = fn(&mut agent::CreateSnapshotRequest);
    let rows: [(&str, Change); 6] = [
        ("name: must have 1 to 128 bytes", |r| r.name.clear()),
        ("name: holds control characters", |r| r.name = "a\nb".into()),
        ("volume_id: is missing", |r| r.volume_id.clear()),
        ("reserve_percent: must be at most 100, got 101", |r| {
            r.reserve_percent = 101;
        }),
        (
            "most_reserve_bytes: 1 B is less than least_reserve_bytes 2 B",
            |r| (r.least_reserve_bytes, r.most_reserve_bytes) = (2, 1),
        ),
        (
            "max_age_seconds: must be 0 (never) or at least 60, got 59",
            |r| r.max_age_seconds = Some(59),
        ),
    ];
    let good = agent::CreateSnapshotRequest {
        name: "s".into(),
        volume_id: "v".into(),
        ..agent::CreateSnapshotRequest::default()
    };
    let parsed = NewSnapshot::try_from(good.clone());
    assert_eq!(parsed.map(|parsed| parsed.reserve), Ok(Reserve::default()));
    for (text, change) in rows {
        let mut request = good.clone();
        change(&mut request);
        let refused = NewSnapshot::try_from(request).unwrap_err();
        assert_eq!(refused.to_string(), text);
    }
}
