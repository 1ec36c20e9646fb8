//! Raw block volumes.

use drivebay_hwtests::{
    kube::{
        Cluster,
        manifest::{IDLE, block_claim, device, pod},
    },
    long_scenario,
};

#[test]
#[ignore = "needs a cluster: hwtests/kubernetes"]
fn a_container_reads_a_read_only_raw_block_volume_and_cannot_write_it() {
    let cluster = Cluster::running();
    cluster.installed();
    let it = cluster.scenario("read-only-block");
    it.apply(&[
        block_claim("raw", 64),
        pod("writer", &[device("raw", "/dev/raw")], IDLE),
        pod("reader", &[device("raw", "/dev/raw").read_only()], IDLE),
    ]);
    it.runs("writer");
    it.runs("reader");
    let digest = it.write("writer", "/dev/raw", 8);
    // With O_DIRECT, since both pods share the page cache.
    let read = "dd if=/dev/raw bs=1M count=8 iflag=direct 2>/dev/null | sha256sum";
    assert_eq!(it.sh("reader", read), digest);

    let write = "dd if=/dev/zero of=/dev/raw bs=1M count=1 conv=notrunc";
    let refused = it.try_sh("reader", write).unwrap_err().to_string();
    assert!(refused.contains("Operation not permitted"), "{refused}");
    assert_eq!(it.sh("reader", read), digest);
    it.end();
}

#[test]
#[ignore = "needs a cluster: hwtests/kubernetes"]
fn a_raw_block_volume_is_undisturbed_by_a_kubelet_restart() {
    let cluster = Cluster::running();
    long_scenario!(cluster);
    cluster.installed();
    let it = cluster.scenario("block");
    // It continues to write during the restart; a failed write ends the container.
    let writes = "while :; do dd if=/dev/urandom of=/dev/raw bs=4k seek=4096 count=1 conv=notrunc,fsync 2>/dev/null
                  sleep 0.1; done";
    it.apply(&[
        block_claim("raw", 64),
        pod("db", &[device("raw", "/dev/raw")], writes),
    ]);
    it.runs("db");
    let digest = it.write("db", "/dev/raw", 8);

    it.restart_kubelet("db");
    assert_eq!(it.digest("db", "/dev/raw", 8), digest);
    assert_eq!(it.restarts("db"), 0);
    // A container that exits is restarted with the device.
    it.restart_container("db");
    assert_eq!(it.digest("db", "/dev/raw", 8), digest);

    it.delete_pod("db");
    it.had_no_failed_call();
    it.end();
}
