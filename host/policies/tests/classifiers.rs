//! Every built-in classifier answers the same as a component and compiled in, over one long course of requests, events
//! and ticks; and no request is left behind.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::collections::BTreeMap;

use pointsman_contract::{
    ClassifierWorker, Event, Fact, Inputs, Progress, Reads, Resolution, RouterConfig, Text, Ticket, Verdict,
};
use pointsman_sandbox::{Args, GuestSlot};
use pointsman_sdk::native::{Call, NativeGuest, NativePolicy, native};

const STEPS: u32 = 3_000;
const WORKERS: u32 = 4;

/// One classifier in both forms.
struct Twins {
    component: GuestSlot,
    native: Box<dyn NativeGuest>,
}

impl Twins {
    fn new(name: &str, policy: &impl NativePolicy, parameters: &str) -> Self {
        let component = support::slot(name, parameters);
        assert_eq!(component.stages(), policy.stages());
        let native = policy.configure(&support::partition(), &RouterConfig::default(), parameters).unwrap();
        assert_eq!(component.inputs(), native.inputs());
        Self { component, native }
    }

    fn inputs(&self) -> &Inputs {
        self.native.inputs()
    }

    fn classify(&mut self, ticket: Ticket, asked: &Asked) -> Option<Verdict> {
        let reads = self.inputs().classify.clone().unwrap_or_default();
        let args = asked.arguments(&reads);
        let texts = args.texts.as_ref().map(|texts| texts.iter().map(Option::as_deref).collect::<Vec<_>>());
        let call = Call { rows: 0, numbers: &args.numbers, workers: None, texts: texts.as_deref() };
        let native = self.native.classify(ticket, &call);
        let component = self.component.classify(ticket, &args).map_err(|fault| fault.message);
        assert_eq!(component, native, "ticket {ticket}");
        component.unwrap()
    }

    fn event(&mut self, event: &Event, now_ms: f64) -> Vec<Resolution> {
        let component = self.component.on_event(event, now_ms).unwrap();
        assert_eq!(component, self.native.on_event(event, now_ms).unwrap(), "{event:?} at {now_ms}");
        component
    }

    fn tick(&mut self, now_ms: f64, progress: &[Progress]) -> Vec<Resolution> {
        let component = self.component.on_tick(now_ms, progress).unwrap();
        assert_eq!(component, self.native.on_tick(now_ms, progress).unwrap(), "tick at {now_ms}");
        component
    }
}

/// A request, as far as a classifier may know it.
struct Asked {
    id: String,
    now_ms: f64,
    ingress_ms: f64,
    tokens: f64,
    session: Option<String>,
    last: bool,
    pinned: Option<u32>,
}

impl Asked {
    fn draw(now_ms: f64, ticket: Ticket, rng: &mut fastrand::Rng) -> Self {
        Self {
            id: format!("r{ticket}"),
            now_ms,
            ingress_ms: now_ms - f64::from(rng.u32(0..3_000)),
            tokens: f64::from(rng.u32(1..4_000)),
            session: (rng.u8(0..5) > 0).then(|| format!("s{}", rng.u8(0..30))),
            last: rng.u8(0..20) == 0,
            pinned: (rng.u8(0..10) == 0).then(|| rng.u32(0..WORKERS)),
        }
    }

    fn arguments(&self, reads: &Reads) -> Args {
        let number = |fact| match fact {
            Fact::NowMs => self.now_ms,
            Fact::IngressMs => self.ingress_ms,
            Fact::PromptTokens | Fact::ContextTokens | Fact::SchedulingCostTokens => self.tokens,
            Fact::SessionFinal if self.session.is_some() => f64::from(u8::from(self.last)),
            Fact::PinnedWorker => self.pinned.map_or(Fact::PinnedWorker.absent(), f64::from),
            other => other.absent(),
        };
        let text = |text| match text {
            Text::SessionId => self.session.clone(),
            Text::RequestId => Some(self.id.clone()),
            _ => None,
        };
        support::arguments(reads, number, text)
    }
}

/// What a request has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stand {
    Deferred,
    Admitted,
    Sent(u32),
}

/// A host in small: draws what happens and checks that each deferral is resolved at most once.
struct Course {
    twins: Twins,
    live: BTreeMap<Ticket, Stand>,
    rng: fastrand::Rng,
    now_ms: f64,
    resolved: u32,
}

impl Course {
    fn take(&mut self, ticket: Ticket, verdict: &Verdict) {
        match verdict {
            Verdict::Admit(_) => _ = self.live.insert(ticket, Stand::Admitted),
            // The host ends what is rejected.
            Verdict::Reject(_) => self.end(ticket, false),
        }
    }

    fn resolve(&mut self, resolutions: Vec<Resolution>) {
        for Resolution { ticket, verdict } in resolutions {
            assert_eq!(self.live.get(&ticket), Some(&Stand::Deferred), "ticket {ticket}");
            self.resolved += 1;
            self.take(ticket, &verdict);
        }
    }

    fn event(&mut self, event: &Event) {
        let resolutions = self.twins.event(event, self.now_ms);
        self.resolve(resolutions);
    }

    fn end(&mut self, ticket: Ticket, completes: bool) {
        let event = match self.live.remove(&ticket) {
            Some(Stand::Sent(worker)) if completes => {
                Event::Completed { ticket, worker, context_tokens: Some(self.rng.u32(1..5_000)) }
            }
            Some(Stand::Sent(worker)) => Event::Aborted { ticket, worker: Some(worker), error: None },
            _ => Event::Aborted { ticket, worker: None, error: Some("gone".to_owned()) },
        };
        self.event(&event);
    }

    fn step(&mut self, ticket: Ticket) {
        self.now_ms += f64::from(self.rng.u32(0..200));
        let drawn = self.rng.usize(0..self.live.len().max(1));
        let any = self.live.iter().nth(drawn).map(|(ticket, stand)| (*ticket, *stand));
        match (self.rng.u8(0..12), any) {
            (0..4, _) => {
                let asked = Asked::draw(self.now_ms, ticket, &mut self.rng);
                self.live.insert(ticket, Stand::Deferred);
                if let Some(verdict) = self.twins.classify(ticket, &asked) {
                    self.take(ticket, &verdict);
                }
            }
            (4..7, Some((ticket, Stand::Admitted))) => {
                let worker = self.rng.u32(0..WORKERS);
                self.live.insert(ticket, Stand::Sent(worker));
                self.event(&Event::Sent { ticket, worker });
            }
            (7..10, Some((ticket, Stand::Sent(_)))) => self.end(ticket, true),
            (10, Some((ticket, _))) => self.end(ticket, false),
            (11, _) => self.tick(),
            _ => {}
        }
    }

    fn admitted(&self) -> Option<Ticket> {
        self.live.iter().find(|(_, stand)| **stand != Stand::Deferred).map(|(ticket, _)| *ticket)
    }

    /// A tick, where the classifier asked for any.
    fn tick(&mut self) {
        if self.twins.inputs().tick_ms.is_none() {
            return;
        }
        let grown = self.live.keys().filter(|ticket| *ticket % 3 == 0);
        let progress: Vec<_> =
            grown.map(|ticket| Progress { ticket: *ticket, context_tokens: 1_000 + ticket }).collect();
        let resolutions = self.twins.tick(self.now_ms, &progress);
        self.resolve(resolutions);
    }
}

/// Runs a course; answers how many deferrals were resolved.
fn check(name: &str, policy: &impl NativePolicy, parameters: &str) -> u32 {
    let twins = Twins::new(name, policy, parameters);
    let (rng, live) = (fastrand::Rng::with_seed(3), BTreeMap::new());
    let mut course = Course { twins, live, rng, now_ms: 0.0, resolved: 0 };
    let worker = |number| ClassifierWorker { number, rank: 0, total_kv_blocks: Some(1_000) };
    course.event(&Event::Workers((0..WORKERS).map(worker).collect()));
    (1..=STEPS).for_each(|ticket| course.step(ticket));
    // Everything that still lives ends; what waits behind it is let in on the way, or by a tick, and ends too.
    for _ in 0..100 {
        while let Some(ticket) = course.admitted() {
            course.end(ticket, true);
        }
        course.now_ms += 60_000.0;
        course.tick();
    }
    assert!(course.live.is_empty(), "{name} left {:?} behind", course.live);
    assert_eq!(course.twins.component.replaced(), 0, "{name}");
    course.resolved
}

#[test]
fn queue_budget() {
    assert_eq!(check("queue-budget", &native::<queue_budget::QueueBudget>(), r#"{"max_wait_ms":2000}"#), 0);
}

#[test]
fn max_in_flight() {
    let resolved = check("max-in-flight", &native::<max_in_flight::MaxInFlight>(), r#"{"max_requests":20}"#);
    assert!(resolved > 100, "{resolved}");
}

#[test]
fn session_serial() {
    let resolved = check("session-serial", &native::<session_serial::SessionSerial>(), "{}");
    assert!(resolved > 100, "{resolved}");
}

#[test]
fn thunderagent() {
    let parameters = r#"{"session_retention_seconds":20,"resume_timeout_seconds":30,"scheduler_interval_seconds":1}"#;
    let resolved = check("thunderagent", &native::<thunderagent::ThunderAgent>(), parameters);
    assert!(resolved > 100, "{resolved}");
}

/// The component alone, with the default limits, and the most fuel of one call.
struct Alone {
    slot: GuestSlot,
    most: u64,
}

impl Alone {
    fn event(&mut self, event: &Event) -> Vec<Resolution> {
        let resolutions = self.slot.on_event(event, 1.0).unwrap();
        self.most = self.most.max(self.slot.fuel_used());
        resolutions
    }

    fn ask(&mut self, ticket: Ticket, session: u32, tokens: f64) -> bool {
        let asked = Asked {
            id: format!("request-{ticket:032}"),
            now_ms: 1.0,
            ingress_ms: 0.0,
            tokens,
            session: Some(format!("session-{session:032}")),
            last: false,
            pinned: None,
        };
        let args = asked.arguments(&self.slot.inputs().classify.clone().unwrap());
        let verdict = self.slot.classify(ticket, &args).unwrap();
        self.most = self.most.max(self.slot.fuel_used());
        verdict.is_some()
    }
}

/// An instruction is about 1 of fuel, and 1,000 of them take some microseconds at most.
#[test]
fn thunderagent_tracks_ten_thousand_requests_within_the_default_limits() {
    const REQUESTS: u32 = 10_000;
    const RANKS: u32 = 64;
    let mut alone = Alone { slot: support::slot("thunderagent", "{}"), most: 0 };
    // Room for four requests of five, each 1,000 tokens and 100 of buffer.
    let room = 4 * REQUESTS / 5 / RANKS * 1_100 / 16 + 1;
    let worker = |number| ClassifierWorker { number, rank: 0, total_kv_blocks: Some(room) };
    alone.event(&Event::Workers((0..RANKS).map(worker).collect()));
    let admitted: Vec<Ticket> = (0..REQUESTS).filter(|ticket| alone.ask(*ticket, *ticket, 1_000.0)).collect();
    assert_eq!(admitted.len() as u32, 4 * REQUESTS / 5);
    for ticket in &admitted {
        alone.event(&Event::Sent { ticket: *ticket, worker: ticket % RANKS });
    }
    for ticket in admitted.iter().step_by(2) {
        alone.event(&Event::Completed { ticket: *ticket, worker: ticket % RANKS, context_tokens: Some(900) });
        alone.ask(REQUESTS + 2 + ticket, *ticket, 950.0);
    }
    assert!(alone.most < 60_000, "fuel of one event: {}", alone.most);
    let grown: Vec<_> = (0..2 * REQUESTS).map(|ticket| Progress { ticket, context_tokens: 1_050 }).collect();
    let mut fuels = Vec::new();
    for second in 0..3 {
        alone.slot.on_tick(f64::from(second) * 5_000.0, &grown).unwrap();
        fuels.push(alone.slot.fuel_used());
    }
    // Half an hour later everything that waits is resumed at once.
    let resumed = alone.slot.on_tick(1_900_000.0, &grown).unwrap();
    fuels.push(alone.slot.fuel_used());
    assert!(resumed.len() > 1_000, "{}", resumed.len());
    assert!(fuels.iter().all(|fuel| *fuel < 100_000_000), "fuel of a reconcile: {fuels:?}");
}
