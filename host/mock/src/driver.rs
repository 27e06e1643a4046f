//! Runs one rank's batch in real time.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::time::Instant;

use crate::config::Timing;
use crate::events::KvEvent;
use crate::scheduler::{Job, Scheduler};
use crate::stats::{LiveStats, add};

/// A timer is no finer than this; shorter waits are made up for later.
const TIMER: Duration = Duration::from_millis(1);

/// The batch is not hurried on to make up for more than this.
const LAG: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) enum Command {
    Submit(Job),
    ClearCache,
}

/// One rank, as requests see it.
#[derive(Clone, Debug)]
pub(crate) struct Rank {
    pub(crate) commands: UnboundedSender<Command>,
    pub(crate) stats: Arc<LiveStats>,
}

impl Rank {
    /// Whether the rank is there to take the request.
    pub(crate) fn submit(&self, job: Job) -> bool {
        add(&self.stats.waiting, 1);
        self.commands.send(Command::Submit(job)).is_ok()
    }

    /// Requests in it.
    pub(crate) fn load(&self) -> u64 {
        let stats = self.stats.read();
        stats.running + stats.waiting
    }
}

/// Takes steps while there is something to do, until nobody can ask for more.
pub(crate) async fn drive(
    mut scheduler: Scheduler,
    timing: Timing,
    mut commands: UnboundedReceiver<Command>,
    events: Option<UnboundedSender<Vec<KvEvent>>>,
) {
    let mut due = Instant::now();
    loop {
        while let Ok(command) = commands.try_recv() {
            apply(&mut scheduler, command);
        }
        let step = scheduler.start_step();
        publish(&mut scheduler, events.as_ref());
        let Some(step) = step else {
            let Some(command) = commands.recv().await else { return };
            apply(&mut scheduler, command);
            due = Instant::now();
            continue;
        };
        let now = Instant::now();
        due = due.max(now.checked_sub(LAG).unwrap_or(now)) + timing.step(step.decoding, step.prefill_tokens);
        if due > now + TIMER {
            tokio::time::sleep_until(due).await;
        } else {
            tokio::task::yield_now().await;
        }
        scheduler.finish_step();
        publish(&mut scheduler, events.as_ref());
    }
}

fn apply(scheduler: &mut Scheduler, command: Command) {
    match command {
        Command::Submit(job) => scheduler.enqueue(job),
        Command::ClearCache => scheduler.clear_cache(),
    }
}

fn publish(scheduler: &mut Scheduler, events: Option<&UnboundedSender<Vec<KvEvent>>>) {
    let batch = scheduler.take_events();
    if let Some(events) = events.filter(|_| !batch.is_empty()) {
        // Without its publisher the engine is about to stop.
        let _ = events.send(batch);
    }
}
