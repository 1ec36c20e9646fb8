//! Compiles the protocol files, without needing protoc on the machine.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = [
        "csi/v1/csi.proto",
        "agent/v1/agent.proto",
        "pluginregistration/v1/api.proto",
    ];
    for file in files {
        println!("cargo::rerun-if-changed={file}");
    }
    let descriptors = protox::compile(files, ["."])?;
    // Descriptor extensions (csi_secret and its like) are for readers; no code comes of them.
    tonic_prost_build::configure()
        .build_transport(true)
        .compile_fds(descriptors)?;
    Ok(())
}
