//! Loading: bytes of any kind, and good policies with edits.

use std::sync::OnceLock;

use pointsman_sandbox::{Artifact, Fault, GuestSlot, Limits, LoadError, LoadStep, Outcome, Sandbox, SandboxConfig};

use super::check_sentence;
use super::common::{Classifier, Policy, args, setup};

/// Any bytes are refused in one sentence, or become a guest that answers or faults.
///
/// Bytes that begin as WebAssembly are taken as they are. Of others the first says which policy, and every four after
/// it are one edit of its component.
pub fn run(data: &[u8]) {
    let Some((which, edits)) = data.split_first() else { return };
    let bytes = if data.starts_with(b"\0asm") { data.to_vec() } else { edited(usize::from(*which), edits) };
    let limits = Limits { deadline_us: 10_000_000, ..Limits::default() };
    let artifact = Artifact::from_bytes("fuzzed.wasm", bytes);
    // Without a worker to compile it, an artifact that is not trusted meets every check before the compiler and no more.
    match sandbox().load_with(&artifact, &limits) {
        Err(LoadError::Untrusted { .. }) => {}
        Err(error) => {
            assert!(error.step() < LoadStep::Compile, "{error}");
            return check_sentence(&error.to_string());
        }
        Ok(_) => panic!("compiled without a worker"),
    }
    let policy = match sandbox().load_with(&artifact.trusted(), &limits) {
        Ok(policy) => policy,
        Err(error) => return check_sentence(&error.to_string()),
    };
    let mut slot = match GuestSlot::new(setup(&policy, limits)) {
        Ok(slot) => slot,
        Err(error) => return check_sentence(&error.to_string()),
    };
    let (stages, args) = (slot.stages(), args(&[3.0, 1.0, 2.0]));
    for _ in 0..2 {
        let faults = [
            stages.filter.then(|| slot.keep(&args).err()),
            stages.score.then(|| slot.score(&args).err()),
            stages.pick.then(|| slot.pick(&args).err()),
            stages.select.then(|| slot.select(&args).err()),
            stages.classify.then(|| slot.classify(7, &args).err()),
            stages.classify.then(|| slot.on_tick(1.0, &[]).err()),
        ];
        faults.iter().flatten().flatten().for_each(check_fault);
    }
}

/// A fault says what happened, and that it did.
pub(super) fn check_fault(fault: &Fault) {
    assert_ne!(fault.outcome, Outcome::Ok);
    check_sentence(&fault.to_string());
}

fn sandbox() -> &'static Sandbox {
    static SANDBOX: OnceLock<Sandbox> = OnceLock::new();
    SANDBOX.get_or_init(|| Sandbox::new(SandboxConfig { guests: 2, ..SandboxConfig::default() }).unwrap())
}

/// A good policy's component after edits of four bytes: what to do, where (in 65,536ths of the file), a value.
fn edited(which: usize, edits: &[u8]) -> Vec<u8> {
    static WHOLE: OnceLock<[Vec<u8>; 2]> = OnceLock::new();
    let policies = WHOLE.get_or_init(|| {
        [Policy::whole(), Policy::classifier(Classifier::default())]
            .map(|policy| wat::parse_str(policy.text()).unwrap())
    });
    let mut bytes = policies[which % policies.len()].clone();
    for edit in edits.chunks_exact(4).take(64) {
        let [what, low, high, value] = [0, 1, 2, 3].map(|at| edit[at]);
        let at = (usize::from(u16::from_le_bytes([low, high])) * bytes.len()) >> 16;
        let end = (at + usize::from(value)).min(bytes.len());
        match what % 6 {
            0 => bytes[at] = value,
            1 => bytes[at] ^= 1 << (value % 8),
            2 => bytes.insert(at, value),
            3 => _ = bytes.drain(at..end),
            4 => bytes.extend_from_within(at..end),
            _ => bytes.truncate(at.max(1)),
        }
        if bytes.is_empty() {
            break;
        }
    }
    bytes
}
