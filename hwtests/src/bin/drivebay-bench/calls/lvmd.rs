//! topolvm's lvmd, which creates and removes logical volumes for its node plugin, over its own protocol, on its own drive.

use std::{env, fs, path::PathBuf, time::Duration};

use drivebay_hwtests::{Shelf, Trouble, children::Process, csi, memory::Memory, wait};
use prost::Message;
use tonic::{Request, client::Grpc, codegen::http::uri::PathAndQuery, transport::Channel};
use tonic_prost::ProstCodec;

use super::{admin::drive, admin_drive::VolumeGroup};

/// Environment variable with the path of its program; hwtests/bench builds it.
const PROGRAM: &str = "DRIVEBAY_BENCH_LVMD";
const START_LIMIT: Duration = Duration::from_secs(60);

/// A running lvmd with a volume group. Stopped before its volume group is removed.
pub(super) struct Lvmd {
    process: Process,
    channel: Channel,
    _vg: VolumeGroup,
}

/// `proto.CreateLVRequest`, with the fields that are used.
#[derive(Clone, PartialEq, Eq, Message)]
struct Create {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "4")]
    device_class: String,
    #[prost(int64, tag = "6")]
    size_bytes: i64,
}

/// `proto.RemoveLVRequest`.
#[derive(Clone, PartialEq, Eq, Message)]
struct Remove {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    device_class: String,
}

/// An answer of which only the status matters.
#[derive(Clone, PartialEq, Eq, Message)]
struct Answer {}

const CLASS: &str = "bench";
const VG: &str = "drivebay-bench-lvmd";

impl Lvmd {
    /// Starts lvmd with `others` volumes of `mib` MiB. None if the environment does not name its program.
    pub(super) async fn start(
        shelf: &Shelf,
        bytes: u64,
        others: usize,
        mib: u64,
    ) -> Result<Option<Self>, Trouble> {
        let Some(program) = env::var_os(PROGRAM).map(PathBuf::from) else {
            return Ok(None);
        };
        let dir = shelf.dir().join("lvmd");
        fs::create_dir(&dir)?;
        let vg = VolumeGroup::new(&drive(&dir, "drive.img", bytes)?, VG)?;
        for other in 0..others {
            vg.create(&format!("other-{other}"), mib)?;
        }
        let [socket, config, log] =
            ["lvmd.sock", "lvmd.yaml", "lvmd.log"].map(|name| dir.join(name));
        let class = format!("{{name: {CLASS}, volume-group: {VG}, spare-gb: 0, default: true}}");
        fs::write(
            &config,
            format!(
                "socket-name: {}\ndevice-classes: [{class}]\n",
                socket.display()
            ),
        )?;
        let args = ["--config".to_owned(), config.display().to_string()];
        let process = Process::start(&program.display().to_string(), &args, &log)?;
        if wait::poll(START_LIMIT, || socket.exists().then_some(())).is_none() {
            let output = fs::read_to_string(&log).unwrap_or_default();
            return Err(Trouble::new(format!("lvmd does not serve: {output}")));
        }
        Ok(Some(Self {
            process,
            channel: csi::channel(&socket).await?,
            _vg: vg,
        }))
    }

    pub(super) async fn create(&self, name: &str, bytes: u64) -> Result<(), Trouble> {
        let request = Create {
            name: name.to_owned(),
            device_class: CLASS.to_owned(),
            size_bytes: i64::try_from(bytes).unwrap_or(i64::MAX),
        };
        self.call("/proto.LVService/CreateLV", request).await
    }

    pub(super) async fn remove(&self, name: &str) -> Result<(), Trouble> {
        let request = Remove {
            name: name.to_owned(),
            device_class: CLASS.to_owned(),
        };
        self.call("/proto.LVService/RemoveLV", request).await
    }

    /// Returns the memory of the lvmd process, without descendants. Errs if it has ended or may not be read.
    pub(super) fn memory(&self) -> Result<Memory, Trouble> {
        Ok(Memory::of(self.process.pid())?)
    }

    async fn call<T: Message + Clone + 'static>(
        &self,
        path: &'static str,
        request: T,
    ) -> Result<(), Trouble> {
        let mut client = Grpc::new(self.channel.clone());
        client
            .ready()
            .await
            .map_err(|error| Trouble::doing("calling lvmd", &error))?;
        let codec = ProstCodec::<T, Answer>::default();
        let path = PathAndQuery::from_static(path);
        client.unary(Request::new(request), path, codec).await?;
        Ok(())
    }
}

impl Drop for Lvmd {
    fn drop(&mut self) {
        self.process.kill();
    }
}
