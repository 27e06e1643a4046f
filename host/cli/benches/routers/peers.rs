//! The other routers: installed where they are missing, and started as their documentation says.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Router;
use crate::load::MODEL;
use crate::process::Process;

/// A Python package of a router, in a virtual environment of its own.
struct Package {
    /// The folder of its environment.
    folder: &'static str,
    /// Arguments of `pip install`, one call each.
    install: &'static [&'static [&'static str]],
    /// What must be there, and its version.
    proof: (&'static str, &'static str),
}

const VLLM_ROUTER: Package =
    Package { folder: "vllm-router", install: &[&["vllm-router==0.1.17"]], proof: ("vllm-router", "0.1.17") };
const SMG: Package = Package { folder: "smg", install: &[&["smg==1.13.0"]], proof: ("smg", "1.13.0") };
/// Without what its engines alone need.
const DYNAMO: Package = Package {
    folder: "dynamo",
    install: &[
        &["--no-deps", "ai-dynamo==1.6.1", "ai-dynamo-runtime==1.6.1"],
        &[
            "aiohttp",
            "certifi",
            "kubernetes<33",
            "msgspec",
            "prometheus-client",
            "pyzmq",
            "redis<9",
            "tqdm",
            "transformers",
            "zstandard<1",
            "uvloop",
            "pydantic<=2.13.5",
        ],
    ],
    proof: ("ai-dynamo", "1.6.1"),
};

impl Package {
    /// The folder of its programs.
    fn installed(&self) -> Result<PathBuf, String> {
        let folder = std::env::var_os("POINTSMAN_PEERS").map_or_else(|| crate::tmp().join("peers"), PathBuf::from);
        let bin = folder.join(self.folder).join("bin");
        if self.is_in(&bin) {
            return Ok(bin);
        }
        eprintln!("installing {} {} below {}", self.proof.0, self.proof.1, folder.display());
        fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
        run(Command::new("python3").args(["-m", "venv"]).arg(folder.join(self.folder)))?;
        for packages in self.install {
            run(Command::new(bin.join("python")).args(["-m", "pip", "install", "--quiet"]).args(*packages))?;
        }
        self.is_in(&bin).then_some(bin).ok_or_else(|| "pip installed another version".to_owned())
    }

    fn is_in(&self, bin: &Path) -> bool {
        let (package, version) = self.proof;
        let asks = format!("import importlib.metadata as m; print(m.version('{package}'))");
        let told = Command::new(bin.join("python")).args(["-c", &asks]).output();
        told.is_ok_and(|told| String::from_utf8_lossy(&told.stdout).trim() == version)
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{:?}: {error}", command.get_program()))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    let last = || errors.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default().to_owned();
    output.status.success().then_some(()).ok_or_else(last)
}

/// `vllm-router` with that policy.
pub fn vllm_router(policy: &str, engines: &[SocketAddr]) -> Result<Router, String> {
    let program = VLLM_ROUTER.installed()?.join("vllm-router");
    let mut command = Command::new(program);
    command.args(["--log-level", "warning"]);
    started(format!("vllm-router, `{policy}`"), command, policy, engines)
}

/// `smg` with that policy.
pub fn smg(policy: &str, engines: &[SocketAddr]) -> Result<Router, String> {
    let program = SMG.installed()?.join("smg");
    let mut command = Command::new(program);
    command.args(["launch", "--log-level", "warn"]);
    started(format!("smg, `{policy}`"), command, policy, engines)
}

/// The two have most of their arguments in common.
fn started(name: String, mut command: Command, policy: &str, engines: &[SocketAddr]) -> Result<Router, String> {
    let [address, metrics] = crate::free();
    command.args(["--policy", policy, "--host", "127.0.0.1", "--port", &address.port().to_string()]);
    command.args(["--prometheus-host", "127.0.0.1", "--prometheus-port", &metrics.port().to_string()]);
    command.arg("--worker-urls").args(engines.iter().map(|engine| format!("http://{engine}")));
    Router::start(name, vec![command], address)
}

/// `dynamo.frontend`, which knows no engines but those of Dynamo: its own simulated ones are behind it.
pub fn dynamo(engines: usize) -> Result<Router, String> {
    let python = DYNAMO.installed()?.join("python");
    let model = crate::tmp().join("tiny-model");
    fs::create_dir_all(&model).map_err(|error| error.to_string())?;
    run(Command::new(&python).args(["-c", include_str!("tiny_model.py")]).arg(&model))?;
    let registry = tempfile::Builder::new().prefix("dynamo-").tempdir_in(crate::tmp()).unwrap();
    let command = |module: &str| {
        let mut command = Command::new(&python);
        command.args(["-m", module]).current_dir(registry.path()).env("DYN_FILE_KV", registry.path().join("kv"));
        command.envs([("DYN_DISCOVERY_BACKEND", "file"), ("DYN_REQUEST_PLANE", "tcp"), ("DYN_EVENT_PLANE", "zmq")]);
        command.envs([("HF_HUB_OFFLINE", "1"), ("DYN_LOG", "warn")]);
        for host in ["DYN_TCP_RPC_HOST", "DYN_TCP_RESPONSE_STREAM_HOST", "DYN_EVENT_PLANE_HOST", "DYN_SYSTEM_HOST"] {
            command.env(host, "127.0.0.1");
        }
        command
    };
    let [address] = crate::free();
    let mut frontend = command("dynamo.frontend");
    frontend.args(["--http-host", "127.0.0.1", "--http-port", &address.port().to_string()]);
    frontend.args(["--router-mode", "kv", "--kv-cache-block-size", "16"]);
    let mut mocker = command("dynamo.mocker");
    mocker.arg("--model-path").arg(&model).args(["--model-name", MODEL, "--num-workers", &engines.to_string()]);
    mocker.args(["--block-size", "16", "--speedup-ratio", "10000"]);
    let router = Router::start("dynamo.frontend, `kv`".to_owned(), vec![frontend, mocker], address)?;
    Ok(Router { own_engines: true, _folder: Some(registry), ..router })
}

/// Ours with that built-in policy, as a component.
pub fn pointsman(policy: &str, engines: &[SocketAddr]) -> Result<Router, String> {
    let folder = tempfile::Builder::new().prefix("pointsman-").tempdir_in(crate::tmp()).unwrap();
    let workers: Vec<String> = (1..)
        .zip(engines)
        .map(|(worker, engine)| {
            format!("  - {{worker_id: {worker}, model_name: {MODEL}, endpoint: 'http://{engine}', block_size: 16}}\n")
        })
        .collect();
    let [address] = crate::free();
    let (server, policies) = (folder.path().join("server.yaml"), folder.path().join("policies.yaml"));
    fs::write(&server, format!("listen: {address}\nworkers:\n{}", workers.concat())).unwrap();
    let chosen = format!("worker_selection: {{aggregated: it, instances: [{{name: it, type: {policy}}}]}}\n");
    fs::write(&policies, chosen).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_pointsman"));
    command.env_remove("RUST_LOG").arg("serve").arg("--config").arg(server);
    command.arg("--router-policy-config").arg(policies);
    let router = Router::start(format!("**pointsman**, `{policy}`"), vec![command], address)?;
    Ok(Router { _folder: Some(folder), ..router })
}

/// The router's processes, the first of which is the router.
pub fn start_all(name: &str, commands: Vec<Command>) -> Result<Vec<Process>, String> {
    let logs = crate::tmp().join("logs");
    fs::create_dir_all(&logs).map_err(|error| error.to_string())?;
    let plain: String = name.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
    let log = |number: usize| logs.join(format!("{plain}-{number}.log"));
    let started = commands.into_iter().enumerate();
    started.map(|(number, mut command)| Process::start(&mut command, log(number))).collect()
}
