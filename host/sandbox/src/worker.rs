//! The compile worker: a program that reads one component on its standard input, compiles it and answers the machine
//! code, and the side that starts it, waits for it and ends it.
//!
//! A compiler's time and memory follow no bound on its input, and its bugs may end the process. So it runs in a process
//! of its own, which holds none of this one's descriptors and variables, and which the kernel bounds.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit};
use sha2::{Digest, Sha256};

use crate::artifact::Artifact;
use crate::bounds::CompileLimits;
use crate::compile::{CompileFailure, Key};
use crate::engine::{self, Determinism, EngineKind};
use crate::limits::Profile;
use crate::text::sentence;

/// The first argument of a program that is started as a compile worker.
const ARGUMENT: &str = "compile-worker";
/// The most of a worker's standard error that is read, in bytes.
const MOST_SAID: u64 = 512;
/// Begins either message; the number is the version of both.
const MAGIC: &[u8; 8] = b"pmcomp\0\x01";

/// The program that compiles, and its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerCommand {
    /// The program; started without a variable of the environment.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
}

impl WorkerCommand {
    /// The command that starts a program as a worker, one whose `main` begins with [`init_compile_worker`].
    #[must_use]
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into(), arguments: vec![ARGUMENT.into()] }
    }

    /// As [`Self::new`], of the program that runs: this very one, also where a newer one has taken its path.
    #[must_use]
    pub fn this_program() -> Self {
        Self::new("/proc/self/exe")
    }
}

/// Makes this program a compile worker where it was started as one, with `compile-worker` as its first argument: compiles
/// what comes on standard input and ends the process. Everywhere else it returns at once.
///
/// Call it first in `main`, before any thread starts.
pub fn init_compile_worker() {
    if std::env::args_os().nth(1).is_some_and(|argument| argument == ARGUMENT) {
        std::process::exit(match serve() {
            Ok(()) => 0,
            Err(error) => {
                let _ = writeln!(io::stderr(), "the compile worker cannot serve: {error}");
                1
            }
        });
    }
}

/// One compilation.
pub(crate) struct Job<'a> {
    pub(crate) kind: EngineKind,
    pub(crate) determinism: Determinism,
    pub(crate) profile: Profile,
    pub(crate) limits: &'a CompileLimits,
    pub(crate) artifact: &'a Artifact,
    /// What the answer must be for.
    pub(crate) key: &'a Key,
}

/// Why there is no machine code.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The component is at fault, in the engine's words.
    Invalid(String),
    /// The compilation is.
    Compile(CompileFailure),
}

/// What a worker reads first.
struct Header {
    kind: EngineKind,
    determinism: Determinism,
    memory_bytes: u64,
    cpu_seconds: u64,
    component_bytes: u64,
}

/// A worker's answer begins with [`MAGIC`] and one of these.
const COMPILED: u8 = 0;
const INVALID: u8 = 1;
const NO_MEMORY: u8 = 2;
const PREFIX: usize = MAGIC.len() + 1 + size_of::<Key>();

impl Header {
    const BYTES: usize = MAGIC.len() + 2 + 3 * 8;

    fn write(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend([self.kind.number(), u8::from(self.determinism == Determinism::Portable)]);
        for number in [self.memory_bytes, self.cpu_seconds, self.component_bytes] {
            bytes.extend(number.to_le_bytes());
        }
        bytes
    }

    fn read(input: &mut impl Read) -> io::Result<Self> {
        let other = || io::Error::other("its input is not the sandbox's; it is started by the sandbox alone");
        let mut bytes = [0; Self::BYTES];
        input.read_exact(&mut bytes).map_err(|_| other())?;
        let mut bytes = bytes.as_slice().strip_prefix(MAGIC).ok_or_else(other)?;
        let [kind, portable] = *bytes.split_off(..2).and_then(|flags| flags.as_array()).ok_or_else(other)?;
        let mut number = || bytes.split_off(..8).and_then(|number| number.as_array().copied()).map(u64::from_le_bytes);
        Ok(Self {
            kind: EngineKind::from_number(kind).ok_or_else(other)?,
            determinism: if portable == 1 { Determinism::Portable } else { Determinism::Fast },
            memory_bytes: number().ok_or_else(other)?,
            cpu_seconds: number().ok_or_else(other)?,
            component_bytes: number().ok_or_else(other)?,
        })
    }
}

// The worker's side.

fn serve() -> io::Result<()> {
    close_descriptors()?;
    let mut input = io::stdin().lock();
    let header = Header::read(&mut input)?;
    confine(&header)?;
    let mut component = Vec::new();
    input.take(header.component_bytes).read_to_end(&mut component)?;
    if component.len() as u64 != header.component_bytes {
        return Err(io::Error::other("the component on its standard input is cut short"));
    }
    let (status, key, body) = answer(&header, &component)?;
    let mut output = io::stdout().lock();
    output.write_all(MAGIC)?;
    output.write_all(&[status])?;
    output.write_all(&key.0)?;
    output.write_all(&body)?;
    output.flush()
}

fn answer(header: &Header, component: &[u8]) -> io::Result<(u8, Key, Vec<u8>)> {
    let engine = engine::build_compiler(header.kind, header.determinism).map_err(io::Error::other)?;
    let key = Key::of(&engine, header.kind, &Sha256::digest(component).into());
    Ok(match engine.precompile_component(component) {
        Ok(code) => (COMPILED, key, code),
        Err(error) if error.is::<wasmtime::OutOfMemory>() => (NO_MEMORY, key, Vec::new()),
        Err(error) => (INVALID, key, sentence(&format!("{error:#}")).into_bytes()),
    })
}

/// Closes what was inherited by mistake: a descriptor of the host's is a way out.
#[expect(unsafe_code, reason = "closes descriptors by their numbers")]
fn close_descriptors() -> io::Result<()> {
    const OPEN: &str = "/proc/self/fd";
    let mut open: Vec<i32> = Vec::new();
    for entry in std::fs::read_dir(OPEN)? {
        open.extend(entry?.file_name().to_str().and_then(|name| name.parse::<i32>().ok()));
    }
    // The folder was open itself while it was read.
    open.retain(|descriptor| *descriptor > 2 && std::fs::symlink_metadata(format!("{OPEN}/{descriptor}")).is_ok());
    for descriptor in open {
        // SAFETY: it is open, and nothing in this process owns it: the process has just started, has one thread, and
        // uses the three standard descriptors alone.
        unsafe { rustix::io::close(descriptor) };
    }
    Ok(())
}

/// Hands the bounds to the kernel.
fn confine(header: &Header) -> io::Result<()> {
    // One second between the signal that says so and the one that ends the process in any case.
    let (cpu, cpu_hard) = (header.cpu_seconds, header.cpu_seconds.saturating_add(1));
    for (resource, soft, hard) in [
        (Resource::As, header.memory_bytes, header.memory_bytes),
        (Resource::Cpu, cpu, cpu_hard),
        (Resource::Core, 0, 0),
    ] {
        // Where the process may have less already, that stays.
        let most = rustix::process::getrlimit(resource).maximum.unwrap_or(u64::MAX);
        let limits = Rlimit { current: Some(soft.min(most)), maximum: Some(hard.min(most)) };
        rustix::process::setrlimit(resource, limits)?;
    }
    rustix::process::nice(10)?;
    // Nobody waits for an answer once the host has gone.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    Ok(())
}

// The sandbox's side.

/// A worker that runs; ended and reaped when dropped.
struct Worker(Child);

impl Drop for Worker {
    fn drop(&mut self) {
        // Both fail only where it has ended and was reaped.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What a worker wrote.
struct Output {
    answer: Vec<u8>,
    said: Vec<u8>,
}

/// Compiles in a worker: machine code for the job's key, or why there is none. Ends within the job's wall-clock limit.
pub(crate) fn run(command: &WorkerCommand, job: &Job<'_>) -> Result<Vec<u8>, Failure> {
    let deadline = Instant::now() + Duration::from_millis(job.limits.wall_ms);
    // Neither a process nor a thread is to be had on every machine at every time.
    let not_started = |error: io::Error| {
        let program = command.program.display().to_string();
        Failure::Compile(CompileFailure::Start { program, reason: error.to_string() })
    };
    let mut worker = start(command).map_err(not_started)?;
    let output = exchange(&mut worker, job).map_err(not_started)?;
    let output = output.recv_timeout(deadline.saturating_duration_since(Instant::now()));
    let Ok(Output { answer, said }) = output else { return Err(job.too_long()) };
    if answer.len() as u64 > job.most_answer() {
        return Err(job.too_much("code_bytes", job.limits.code_bytes));
    }
    match parse(answer) {
        Some((COMPILED, key, code)) if key == *job.key => Ok(code),
        Some((INVALID, _, reason)) => Err(Failure::Invalid(String::from_utf8_lossy(&reason).into_owned())),
        Some((NO_MEMORY, ..)) => Err(job.too_much("memory_bytes", job.limits.memory_bytes)),
        Some(_) => Err(Failure::Compile(CompileFailure::Crash("answered for another component or engine".into()))),
        None => match wait(&mut worker, deadline) {
            Some(status) => Err(job.ended(status, &said)),
            None => Err(job.too_long()),
        },
    }
}

fn start(command: &WorkerCommand) -> io::Result<Worker> {
    Command::new(&command.program)
        .args(&command.arguments)
        .arg0("pointsman-compile-worker")
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map(Worker)
}

/// Sends the job and collects what comes back. The threads end with the worker's pipes; nobody waits for them.
fn exchange(worker: &mut Worker, job: &Job<'_>) -> io::Result<mpsc::Receiver<Output>> {
    let header = Header {
        kind: job.kind,
        determinism: job.determinism,
        memory_bytes: job.limits.memory_bytes,
        cpu_seconds: job.limits.cpu_seconds,
        component_bytes: job.artifact.len() as u64,
    };
    let (sender, receiver) = mpsc::channel();
    let Child { stdin, stdout, stderr, .. } = &mut worker.0;
    let (stdin, stdout, stderr) = (stdin.take(), stdout.take(), stderr.take());
    let artifact = job.artifact.clone();
    let thread = |name: &str| std::thread::Builder::new().name(name.to_owned());
    thread("pointsman-compile-in").spawn(move || {
        if let Some(mut stdin) = stdin {
            // A worker that reads no further has an answer, or has ended; either shows on the other pipes.
            let _ = stdin.write_all(&header.write()).and_then(|()| stdin.write_all(artifact.bytes()));
        }
    })?;
    let most = job.most_answer().saturating_add(1);
    thread("pointsman-compile-out").spawn(move || {
        let mut output = Output { answer: Vec::new(), said: Vec::new() };
        let _ = stdout.map(|stdout| stdout.take(most).read_to_end(&mut output.answer));
        if output.answer.len() as u64 != most {
            let _ = stderr.map(|stderr| stderr.take(MOST_SAID).read_to_end(&mut output.said));
        }
        // Fails where the deadline has passed.
        let _ = sender.send(output);
    })?;
    Ok(receiver)
}

fn parse(mut answer: Vec<u8>) -> Option<(u8, Key, Vec<u8>)> {
    let prefix: &[u8; PREFIX] = answer.first_chunk()?;
    let (status, key) = prefix.strip_prefix(MAGIC)?.split_first()?;
    let (status, key) = (*status, Key(*key.as_array()?));
    answer.drain(..PREFIX);
    Some((status, key, answer))
}

/// Waits for a worker that has closed its output; none where it has not ended by then.
fn wait(worker: &mut Worker, deadline: Instant) -> Option<ExitStatus> {
    loop {
        match worker.0.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(1)),
            _ => return None,
        }
    }
}

impl Job<'_> {
    fn most_answer(&self) -> u64 {
        self.limits.code_bytes.saturating_add(PREFIX as u64)
    }

    fn too_long(&self) -> Failure {
        let (key, most) = ("wall_ms", format!("{} ms", self.limits.wall_ms));
        Failure::Compile(CompileFailure::Timeout { profile: self.profile.as_str(), key, most })
    }

    fn too_much(&self, key: &'static str, most: u64) -> Failure {
        Failure::Compile(CompileFailure::Memory { profile: self.profile.as_str(), key, most })
    }

    /// What it means that a worker ended without an answer.
    fn ended(&self, status: ExitStatus, said: &[u8]) -> Failure {
        const ABORT: i32 = 6;
        const KILL: i32 = 9;
        const CPU: i32 = 24;
        let said = String::from_utf8_lossy(said);
        match status.signal() {
            Some(CPU) => {
                let (key, most) = ("cpu_seconds", format!("{} s of processor time", self.limits.cpu_seconds));
                Failure::Compile(CompileFailure::Timeout { profile: self.profile.as_str(), key, most })
            }
            // The kernel's own answer to a machine without memory; nobody here has sent it.
            Some(KILL) => self.too_much("memory_bytes", self.limits.memory_bytes),
            // What Rust's standard library says before it aborts on a failed allocation; there is no other sign of one.
            Some(ABORT) if said.contains("memory allocation of") => {
                self.too_much("memory_bytes", self.limits.memory_bytes)
            }
            _ => {
                tracing::warn!(said = sentence(&said), "the compile worker ended with {status}");
                Failure::Compile(CompileFailure::Crash(format!("ended with {status}")))
            }
        }
    }
}
