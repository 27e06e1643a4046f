//! What the runtimes of other languages import, with nothing granted: no files, no sockets, no environment, no
//! arguments, no input.
//!
//! Time is the request's, randomness grows from the partition's seed, and output goes to the policy's log: decisions
//! replay. Every other function of these interfaces is there and ends the call that reaches it, by its name. Nothing
//! here waits: every pollable is ready at once. Nothing here keeps anything for a handle, so there is nothing to leak.

use std::fmt;

use wasmtime::StoreContextMut;
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{
    Component, ComponentType, Lift, Linker, LinkerInstance, Lower, Resource, ResourceType, WasmList,
};

use crate::guest::State;
use crate::imports::wasi_interface;
use crate::log::{self, Level};

/// Fuel of one call, for the host's work.
const FUEL_PER_CALL: u64 = 200;
/// The most random bytes of one call.
const MOST_RANDOM: u64 = 64 << 10;
/// What a stream says that it takes at once, in bytes.
const STREAM_BYTES: u64 = 4 << 10;
/// The longest line that is held back until it ends, in bytes.
const LINE_BYTES: usize = 1 << 10;
/// The clock's step, in nanoseconds: a millisecond.
const RESOLUTION_NS: u64 = 1_000_000;

/// What a guest's calls of these interfaces see and leave behind.
#[derive(Debug)]
pub(crate) struct Wasi {
    /// The request's time.
    now_ms: f64,
    /// Bytes of output that this call may still have looked at: no clock and no neighbour changes it.
    look: usize,
    most_look: usize,
    random: fastrand::Rng,
    /// The unfinished lines of standard output and standard error.
    lines: [Vec<u8>; 2],
}

impl Wasi {
    /// Of a guest that may log so many bytes in a call.
    pub(crate) fn new(seed: u32, log_bytes: u64) -> Self {
        // Twice as much, since an end of line is not logged and an empty line counts as a byte: the log runs out first.
        let most_look = usize::try_from(log_bytes).unwrap_or(usize::MAX).saturating_add(1).saturating_mul(2);
        let random = fastrand::Rng::with_seed(seed.into());
        Self { now_ms: 0.0, look: most_look, most_look, random, lines: Default::default() }
    }

    /// Starts a call.
    pub(crate) fn begin(&mut self, now_ms: f64) {
        (self.now_ms, self.look) = (now_ms, self.most_look);
    }

    /// Nanoseconds; 0 where the time is no time.
    fn now_ns(&self) -> u64 {
        // A cast saturates, and takes what is not a number for 0.
        (self.now_ms * 1e6) as u64
    }
}

/// Standard output or standard error.
#[derive(Clone, Copy)]
enum Output {
    Out,
    Err,
}

impl Output {
    const fn handle(self) -> u32 {
        match self {
            Self::Out => 1,
            Self::Err => 2,
        }
    }

    fn of(stream: &Resource<OutputStream>) -> Self {
        if stream.rep() == Self::Err.handle() { Self::Err } else { Self::Out }
    }

    const fn level(self) -> Level {
        match self {
            Self::Out => Level::Info,
            Self::Err => Level::Warn,
        }
    }

    fn lines(self, wasi: &mut Wasi) -> &mut Vec<u8> {
        let [out, err] = &mut wasi.lines;
        match self {
            Self::Out => out,
            Self::Err => err,
        }
    }
}

/// Logs what a call wrote without ending the line.
pub(crate) fn finish(state: &mut State) {
    for output in [Output::Out, Output::Err] {
        let line = std::mem::take(output.lines(&mut state.wasi));
        if !line.is_empty() {
            state.log.say(output.level(), &String::from_utf8_lossy(&line));
        }
    }
}

/// A function that is there and does nothing.
#[derive(Clone, Debug)]
pub(crate) struct NotGranted(String);

impl fmt::Display for NotGranted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotGranted {}

fn not_granted(what: impl Into<String>) -> wasmtime::Error {
    wasmtime::Error::new(NotGranted(what.into()))
}

enum InputStream {}
enum OutputStream {}
enum Pollable {}
enum IoError {}
enum Descriptor {}
enum TerminalInput {}
enum TerminalOutput {}
/// Whatever no function here hands out.
enum Unreachable {}

fn resource(name: &str) -> ResourceType {
    match name {
        "input-stream" => ResourceType::host::<InputStream>(),
        "output-stream" => ResourceType::host::<OutputStream>(),
        "pollable" => ResourceType::host::<Pollable>(),
        "error" => ResourceType::host::<IoError>(),
        "descriptor" => ResourceType::host::<Descriptor>(),
        "terminal-input" => ResourceType::host::<TerminalInput>(),
        "terminal-output" => ResourceType::host::<TerminalOutput>(),
        _ => ResourceType::host::<Unreachable>(),
    }
}

#[derive(ComponentType, Lift, Lower)]
#[component(variant)]
enum StreamError {
    #[component(name = "last-operation-failed")]
    /// The interface has it; nothing fails here.
    Failed(Resource<IoError>),
    #[component(name = "closed")]
    Closed,
}

#[derive(Clone, Copy, ComponentType, Lift, Lower)]
#[component(record)]
struct Datetime {
    seconds: u64,
    nanoseconds: u32,
}

type Store<'a> = StoreContextMut<'a, State>;
type Linked<'a> = LinkerInstance<'a, State>;
type Wrote = Result<(), StreamError>;
type Read = Result<Vec<u8>, StreamError>;

/// Offers what the component imports of WASI.
pub(crate) fn link(linker: &mut Linker<State>, component: &Component) -> wasmtime::Result<()> {
    let engine = component.engine();
    for (import, item) in component.component_type().imports(engine) {
        let (Some((interface, _)), ComponentItem::ComponentInstance(instance)) = (wasi_interface(import), item.ty)
        else {
            continue;
        };
        let mut linked = linker.instance(import)?;
        for (name, item) in instance.exports(engine) {
            match item.ty {
                ComponentItem::Resource(_) => linked.resource(name, resource(name), |_, _| Ok(()))?,
                ComponentItem::ComponentFunc(_) => function(&mut linked, interface, name)?,
                _ => {}
            }
        }
    }
    Ok(())
}

fn function(linked: &mut Linked<'_>, interface: &'static str, name: &str) -> wasmtime::Result<()> {
    let package = interface.split_once('/').map_or(interface, |(package, _)| package);
    match package {
        "wasi:cli" => cli(linked, interface, name),
        "wasi:clocks" => clocks(linked, interface, name),
        "wasi:io" => io(linked, interface, name),
        "wasi:random" => random(linked, interface, name),
        "wasi:filesystem" if name == "get-directories" => linked.func_wrap(name, |mut store: Store<'_>, (): ()| {
            log::charge(&mut store, FUEL_PER_CALL)?;
            Ok((Vec::<(Resource<Descriptor>, String)>::new(),))
        }),
        _ => unreachable(linked, interface, name),
    }
}

/// A function of whatever type that ends the call.
fn unreachable(linked: &mut Linked<'_>, interface: &str, name: &str) -> wasmtime::Result<()> {
    let what = format!("the policy called {interface} {name}, and nothing of it is granted");
    linked.func_new(name, move |_, _, _, _| Err(not_granted(&*what)))
}

/// A function that answers always the same.
macro_rules! answer {
    ($linked:expr, $name:expr, $params:ty, $answer:expr) => {
        $linked.func_wrap($name, |mut store: Store<'_>, _: $params| {
            log::charge(&mut store, FUEL_PER_CALL)?;
            Ok(($answer,))
        })
    };
}

fn cli(linked: &mut Linked<'_>, interface: &str, name: &str) -> wasmtime::Result<()> {
    match name {
        "get-environment" => answer!(linked, name, (), Vec::<(String, String)>::new()),
        "get-arguments" => answer!(linked, name, (), Vec::<String>::new()),
        "initial-cwd" => answer!(linked, name, (), None::<String>),
        "exit" => linked.func_wrap(name, |_, (_,): (Result<(), ()>,)| -> wasmtime::Result<()> {
            Err(not_granted("the policy ended itself by exit"))
        }),
        "get-stdin" => answer!(linked, name, (), Resource::<InputStream>::new_own(0)),
        "get-stdout" => answer!(linked, name, (), Resource::<OutputStream>::new_own(Output::Out.handle())),
        "get-stderr" => answer!(linked, name, (), Resource::<OutputStream>::new_own(Output::Err.handle())),
        "get-terminal-stdin" => answer!(linked, name, (), None::<Resource<TerminalInput>>),
        "get-terminal-stdout" | "get-terminal-stderr" => {
            answer!(linked, name, (), None::<Resource<TerminalOutput>>)
        }
        _ => unreachable(linked, interface, name),
    }
}

fn clocks(linked: &mut Linked<'_>, interface: &str, name: &str) -> wasmtime::Result<()> {
    let datetime = |ns: u64| Datetime { seconds: ns / 1_000_000_000, nanoseconds: (ns % 1_000_000_000) as u32 };
    match (interface, name) {
        (_, "subscribe-instant" | "subscribe-duration") => answer!(linked, name, (u64,), ready()),
        ("wasi:clocks/monotonic-clock", "now") => linked.func_wrap(name, |mut store: Store<'_>, (): ()| {
            log::charge(&mut store, FUEL_PER_CALL)?;
            Ok((store.data().wasi.now_ns(),))
        }),
        ("wasi:clocks/monotonic-clock", "resolution") => answer!(linked, name, (), RESOLUTION_NS),
        ("wasi:clocks/wall-clock", "now") => linked.func_wrap(name, move |mut store: Store<'_>, (): ()| {
            log::charge(&mut store, FUEL_PER_CALL)?;
            Ok((datetime(store.data().wasi.now_ns()),))
        }),
        ("wasi:clocks/wall-clock", "resolution") => linked.func_wrap(name, move |mut store: Store<'_>, (): ()| {
            log::charge(&mut store, FUEL_PER_CALL)?;
            Ok((datetime(RESOLUTION_NS),))
        }),
        _ => unreachable(linked, interface, name),
    }
}

fn ready() -> Resource<Pollable> {
    Resource::new_own(0)
}

fn io(linked: &mut Linked<'_>, interface: &str, name: &str) -> wasmtime::Result<()> {
    match name {
        "poll" => linked.func_wrap(name, |mut store: Store<'_>, (pollables,): (Vec<Resource<Pollable>>,)| {
            log::charge(&mut store, FUEL_PER_CALL.saturating_add(pollables.len() as u64))?;
            let all: Vec<u32> = (0..).take(pollables.len()).collect();
            Ok((all,))
        }),
        "[method]pollable.ready" => answer!(linked, name, (Resource<Pollable>,), true),
        "[method]pollable.block" => linked.func_wrap(name, |mut store: Store<'_>, (_,): (Resource<Pollable>,)| {
            log::charge(&mut store, FUEL_PER_CALL)
        }),
        "[method]input-stream.read" | "[method]input-stream.blocking-read" => {
            answer!(linked, name, (Resource<InputStream>, u64), Read::Err(StreamError::Closed))
        }
        "[method]input-stream.skip" | "[method]input-stream.blocking-skip" => {
            answer!(linked, name, (Resource<InputStream>, u64), Result::<u64, _>::Err(StreamError::Closed))
        }
        "[method]input-stream.subscribe" => answer!(linked, name, (Resource<InputStream>,), ready()),
        "[method]output-stream.subscribe" => answer!(linked, name, (Resource<OutputStream>,), ready()),
        "[method]output-stream.check-write" => {
            answer!(linked, name, (Resource<OutputStream>,), Result::<_, StreamError>::Ok(STREAM_BYTES))
        }
        "[method]output-stream.flush" | "[method]output-stream.blocking-flush" => {
            answer!(linked, name, (Resource<OutputStream>,), Wrote::Ok(()))
        }
        "[method]output-stream.write" | "[method]output-stream.blocking-write-and-flush" => {
            linked.func_wrap(name, |mut store: Store<'_>, params: (Resource<OutputStream>, WasmList<u8>)| {
                let (stream, contents) = params;
                write(&mut store, Output::of(&stream), &contents)?;
                Ok((Wrote::Ok(()),))
            })
        }
        _ => unreachable(linked, interface, name),
    }
}

/// Logs the lines that the contents end, and holds the rest back.
fn write(store: &mut Store<'_>, output: Output, contents: &WasmList<u8>) -> wasmtime::Result<()> {
    log::charge(store, FUEL_PER_CALL)?;
    // What is more than the log could hold costs no look: a guest may call as often as its fuel lasts.
    let bytes = contents.as_le_slice(&*store);
    let looked_at = bytes.len().min(store.data().wasi.look);
    let bytes = bytes.get(..looked_at).unwrap_or_default().to_vec();
    store.data_mut().wasi.look -= looked_at;
    for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
        let state = store.data_mut();
        let line = output.lines(&mut state.wasi);
        line.extend_from_slice(piece);
        let ended = line.last() == Some(&b'\n');
        if ended || line.len() >= LINE_BYTES {
            let line = std::mem::take(line);
            let text = String::from_utf8_lossy(line.strip_suffix(b"\n").unwrap_or(&line)).into_owned();
            state.log.say(output.level(), &text);
            log::charge(store, log::FUEL_PER_MESSAGE)?;
        }
    }
    Ok(())
}

fn random(linked: &mut Linked<'_>, interface: &str, name: &str) -> wasmtime::Result<()> {
    match name {
        "get-random-bytes" | "get-insecure-random-bytes" => {
            linked.func_wrap(name, |mut store: Store<'_>, (length,): (u64,)| {
                if length > MOST_RANDOM {
                    let message =
                        format!("the policy asked for {length} random bytes at once, and {MOST_RANDOM} is the most");
                    return Err(not_granted(message));
                }
                log::charge(&mut store, FUEL_PER_CALL.saturating_add(length))?;
                let random = &mut store.data_mut().wasi.random;
                let bytes: Vec<u8> = (0..length).map(|_| random.u8(..)).collect();
                Ok((bytes,))
            })
        }
        "get-random-u64" | "get-insecure-random-u64" => linked.func_wrap(name, |mut store: Store<'_>, (): ()| {
            log::charge(&mut store, FUEL_PER_CALL)?;
            Ok((store.data_mut().wasi.random.u64(..),))
        }),
        "insecure-seed" => linked.func_wrap(name, |mut store: Store<'_>, (): ()| {
            log::charge(&mut store, FUEL_PER_CALL)?;
            let random = &mut store.data_mut().wasi.random;
            Ok(((random.u64(..), random.u64(..)),))
        }),
        _ => unreachable(linked, interface, name),
    }
}
