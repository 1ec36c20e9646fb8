//! The first release's programs with today's. Not in CI, where they would have to be built: `hwtests/golden mixed`. What CI
//! runs instead is in `peers` (recorded messages) and `restored` (recorded drives and state).

use std::{collections::HashMap, fs, path::PathBuf, time::Duration};

use drivebay_hwtests::{
    DriveSpec, GIB, MIB, Shelf, csi,
    node::Placed,
    pair::{Builds, Link, Pair},
    wait,
};
use drivebay_proto::csi::CreateVolumeRequest;

const LIMIT: Duration = Duration::from_secs(90);

fn old() -> Builds {
    let named =
        |name: &str| PathBuf::from(std::env::var_os(name).expect("run hwtests/golden mixed"));
    Builds {
        agent: named("DRIVEBAY_OLD_AGENT"),
        controller: named("DRIVEBAY_OLD_CONTROLLER"),
        link: Link::Certificates,
    }
}

fn today() -> Builds {
    Builds {
        link: Link::Certificates,
        ..Builds::here().unwrap()
    }
}

async fn start(builds: &Builds) -> Pair {
    let mut shelf = Shelf::new().unwrap();
    for name in ["a", "b"] {
        shelf.add(DriveSpec::blank(name, 2 * GIB)).unwrap();
    }
    Pair::start(builds, shelf, |_| ()).await
}

async fn create(pair: &Pair, name: &str, block: bool) -> Placed {
    let capability = if block {
        csi::block()
    } else {
        csi::mount("ext4")
    };
    let request = CreateVolumeRequest {
        name: name.to_owned(),
        capacity_range: Some(csi::bytes(128 * MIB)),
        volume_capabilities: vec![capability.clone()],
        parameters: HashMap::from([("class".to_owned(), "demo".to_owned())]),
        ..CreateVolumeRequest::default()
    };
    let volume = pair.csi.create_with(request).await.unwrap();
    pair.node.place(&volume, name, &capability)
}

/// The whole life of volumes, with each side started again in it.
async fn volumes_live(pair: &mut Pair) {
    // The last one made has free space behind it, to grow into.
    let block = create(pair, "block", true).await;
    let mount = create(pair, "mount", false).await;
    let again = create(pair, "mount", false).await;
    assert_eq!(again.id, mount.id);
    for volume in [&mount, &block] {
        pair.node.use_volume(volume).await;
    }
    let letter = mount.target.join("letter");
    fs::write(&letter, "dear reader").unwrap();
    let (bytes, _) = pair
        .csi
        .expand(&mount.id, 192 * MIB, &mount.capability)
        .await
        .unwrap();
    assert_eq!(bytes, 192 << 20);
    let mut ids = [mount.id.clone(), block.id.clone()];
    ids.sort();
    assert_eq!(pair.csi.ids().await.unwrap(), ids);

    pair.controller.stop().unwrap();
    pair.start_controller_again().await;
    pair.are_connected().await;
    pair.agent.kill9();
    wait::until_async(LIMIT, "the node is missed", async || {
        let nodes = pair.controller.nodes().await.unwrap();
        (nodes[0].state != "connected").then_some(())
    })
    .await;
    pair.start_agent_again().await;
    pair.are_connected().await;
    assert_eq!(pair.csi.ids().await.unwrap(), ids);
    assert_eq!(fs::read_to_string(&letter).unwrap(), "dear reader");
    for volume in [&mount, &block] {
        pair.node.leave_volume(volume).await;
        pair.csi.delete(&volume.id).await.unwrap();
    }
    pair.node.erased().await;
    let capacity = async || pair.csi.capacity().await.unwrap();
    let free = wait::poll_async(LIMIT, async || (capacity().await > 3 << 30).then_some(())).await;
    free.expect("all space is free again");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "builds the first release: hwtests/golden mixed"]
async fn the_first_releases_agent_works_with_todays_controller() {
    let builds = Builds {
        agent: old().agent,
        ..today()
    };
    volumes_live(&mut start(&builds).await).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "builds the first release: hwtests/golden mixed"]
async fn todays_agent_works_with_the_first_releases_controller() {
    let builds = Builds {
        controller: old().controller,
        ..today()
    };
    volumes_live(&mut start(&builds).await).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "builds the first release: hwtests/golden mixed"]
async fn a_node_is_upgraded_and_downgraded_under_volumes_in_use() {
    let (old, new) = (old(), today());
    let mut pair = start(&old).await;
    let first = create(&pair, "of-the-first-release", false).await;
    pair.node.use_volume(&first).await;
    let letter = first.target.join("letter");
    fs::write(&letter, "from the first release").unwrap();
    let mut volumes = vec![first];
    for (builds, name) in [(&new, "of-today"), (&old, "of-the-first-release-again")] {
        pair.agent.stop().unwrap();
        pair.controller.stop().unwrap();
        pair.agent.replace_program(builds.agent.clone());
        pair.controller.replace_program(builds.controller.clone());
        pair.start_controller_again().await;
        pair.start_agent_again().await;
        pair.are_connected().await;
        assert_eq!(pair.csi.ids().await.unwrap().len(), volumes.len());
        assert_eq!(
            fs::read_to_string(&letter).unwrap(),
            "from the first release"
        );
        // Staged and published again is what it is already.
        for volume in &volumes {
            pair.node.use_volume(volume).await;
        }
        let volume = create(&pair, name, false).await;
        pair.node.use_volume(&volume).await;
        volumes.push(volume);
        // Nothing of the state was put aside as unreadable.
        for dir in [pair.shelf.dir().join("state"), pair.controller_state()] {
            for entry in fs::read_dir(dir).unwrap() {
                let name = entry.unwrap().file_name().into_string().unwrap();
                assert!(
                    !name.contains(".bad-") && !name.ends_with(".damaged"),
                    "{name}"
                );
            }
        }
    }
    for volume in &volumes {
        pair.node.leave_volume(volume).await;
        pair.csi.delete(&volume.id).await.unwrap();
    }
    pair.node.erased().await;
}
