//! Errs as it is told.

use pointsman_sdk::prelude::*;

#[derive(Parameters)]
pub struct FaultyParameters {
    fault: Fault,
}

#[derive(Clone, Copy, Parameters)]
pub enum Fault {
    Exception,
    Error,
    Short,
    Unknown,
    Unread,
    Loop,
    Memory,
    Print,
}

pub struct Faulty(Fault);

impl Policy for Faulty {
    type Parameters = FaultyParameters;
    const NAME: &'static str = "faulty";
    const DESCRIPTION: &'static str = "Errs as it is told.";

    fn configure(_: &Setup, parameters: FaultyParameters) -> Result<Self, PolicyError> {
        Ok(Self(parameters.fault))
    }
}

impl Scorer for Faulty {
    fn reads(&self) -> Reads {
        match self.0 {
            Fault::Unknown => Reads::NONE.named_signal("load.requests"),
            _ => Signal::LoadActiveRequests.into(),
        }
    }

    fn score(&mut self, _: &Request<'_>, workers: &Candidates<'_>, costs: &mut [f64]) -> Result<(), PolicyError> {
        match self.0 {
            Fault::Exception => costs[workers.len()] = 1.0,
            Fault::Error => return Err(PolicyError::failed("there is no way")),
            Fault::Short => {
                costs[0] = 1.0;
                return Ok(());
            }
            Fault::Unread => costs.copy_from_slice(workers.column(Signal::LoadDecodeBlocks)?),
            Fault::Loop => loop {
                std::hint::black_box(&costs);
            },
            Fault::Memory => {
                let mut all = Vec::new();
                loop {
                    all.push(std::hint::black_box(Vec::<u8>::with_capacity(1 << 20)));
                }
            }
            Fault::Unknown | Fault::Print => pointsman_sdk::log::info(&format!("seen {}", workers.len())),
        }
        costs.fill(0.0);
        Ok(())
    }
}

pointsman_sdk::export!(Faulty: scorer);
