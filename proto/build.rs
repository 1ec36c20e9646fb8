//! Compiles the protocol files, without needing protoc on the machine.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let alone = [
        "csi/v1/csi.proto",
        "agent/v1/agent.proto",
        "agent/v1/by_hand.proto",
        "log/v1/log.proto",
        "pluginregistration/v1/api.proto",
    ];
    // Shows what agents report, in their words.
    let over_agents = "controller/v1/controller.proto";
    for file in alone.iter().chain([&over_agents]) {
        println!("cargo::rerun-if-changed={file}");
    }
    // Descriptor extensions (csi_secret and its like) are for readers; no code comes of them.
    tonic_prost_build::configure()
        .build_transport(true)
        .compile_fds(protox::compile(alone, ["."])?)?;
    // A folder of its own, or it would write the agent's protocol over, without its messages.
    let folder = std::path::PathBuf::from(std::env::var("OUT_DIR")?).join("over_agents");
    std::fs::create_dir_all(&folder)?;
    tonic_prost_build::configure()
        .build_transport(true)
        .out_dir(folder)
        .extern_path(".drivebay.agent.v1", "crate::agent")
        .compile_fds(protox::compile([over_agents], ["."])?)?;
    // Controller once more, for a server whose lists are of entries that are encoded already.
    let mut csi = protox::compile(["csi/v1/csi.proto"], ["."])?;
    for file in &mut csi.file {
        file.service
            .retain(|service| service.name() == "Controller");
        // Comments are found by the number of their service, which that has changed.
        file.source_code_info = None;
    }
    let folder = std::path::PathBuf::from(std::env::var("OUT_DIR")?).join("encoded");
    std::fs::create_dir_all(&folder)?;
    tonic_prost_build::configure()
        .build_client(false)
        .out_dir(folder)
        .extern_path(
            ".csi.v1.ListVolumesResponse",
            "crate::encoded::ListVolumesResponse",
        )
        .extern_path(".csi.v1", "crate::csi")
        .compile_fds(csi)?;
    Ok(())
}
