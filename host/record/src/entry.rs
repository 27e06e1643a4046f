//! What a frame's body holds: which contract it speaks, then policies and decisions as they came.
//!
//! Within a frame a decision is written as its difference from the decision of its partition before it.

use std::sync::Arc;

use pointsman_contract::{CONTRACT_VERSION, Fact, Role, RouterConfig, Signal, Text};
use pointsman_routing::config::{FaultAction, OnFault};
use pointsman_routing::{
    Column, ExtraNames, GuestState, Layout, MemberSpec, PartitionKey, PolicySpec, PolicyState, Snapshot,
    SnapshotDecision, StageMode, Told, WorkerKey,
};
use pointsman_sandbox::{Determinism, LIMITS, Limits, Outcome, Profile};
use sha2::{Digest, Sha256};

use crate::code::{In, Malformed, Out};
use crate::error::RecordError;

pub(crate) const POLICY: u8 = 1;
pub(crate) const DECISION: u8 = 2;

/// The most rows of a snapshot in a record.
const MOST_ROWS: usize = 1 << 20;

type Read<T> = Result<T, Malformed>;

/// How a decision ended: a row, or the name of the error.
pub(crate) type Ended = Result<SnapshotDecision, String>;

/// Begins a frame's body.
pub(crate) fn begin(out: &mut Out) {
    out.text(CONTRACT_VERSION);
    out.0.extend_from_slice(&names());
}

/// Checks how a frame's body begins.
pub(crate) fn check_begin(read: &mut In<'_>, frame: usize) -> Result<(), RecordError> {
    let malformed = |Malformed(what)| RecordError::Malformed { frame, what };
    let mut found = read.text().map_err(malformed)?;
    let mut same = found == CONTRACT_VERSION;
    for byte in names() {
        if read.byte().map_err(malformed)? != byte && same {
            found.push_str(" with other names");
            same = false;
        }
    }
    if same { Ok(()) } else { Err(RecordError::Contract { found, reads: CONTRACT_VERSION }) }
}

/// What tells the facts, texts and signals of this version, which a record has in their order, from others.
fn names() -> [u8; 8] {
    let facts = Fact::ALL.iter().map(|fact| fact.name());
    let texts = Text::ALL.iter().map(|text| text.name());
    let names = facts.chain(texts).chain(Signal::ALL.iter().map(|signal| signal.name()));
    let hash = names.fold(Sha256::new(), |hash, name| hash.chain_update(name).chain_update([0]));
    let mut short = [0; 8];
    short.iter_mut().zip(hash.finalize().as_slice()).for_each(|(to, from)| *to = *from);
    short
}

/// The policy of a partition and how far it is.
pub(crate) fn write_policy(out: &mut Out, label: &str, spec: &PolicySpec, state: &PolicyState) {
    out.text(label);
    write_told(out, &spec.told);
    out.texts(spec.names.signals.iter().map(String::as_str));
    out.texts(spec.names.headers.iter().map(String::as_str));
    out.size(spec.members.len());
    for MemberSpec { instance, digest, parameters, limits, wasi, on_fault } in &spec.members {
        out.text(instance);
        out.text(digest.as_deref().unwrap_or_default());
        out.text(parameters);
        out.text(limits.profile.as_str());
        out.size(LIMITS.len());
        for row in LIMITS {
            out.text(row.key);
            out.varint(limits.get(row.key).unwrap_or_default());
        }
        out.byte(u8::from(*wasi));
        out.text(on_fault.filter.as_str());
        out.text(on_fault.otherwise.as_str());
    }
    match &spec.layout {
        Layout::Single(StageMode::Fused) => out.byte(0),
        Layout::Single(StageMode::Separate) => out.byte(1),
        Layout::Several { filters, scorers, picker } => {
            out.byte(2);
            for places in [filters.as_slice(), scorers.as_slice(), picker.as_slice()] {
                out.size(places.len());
                places.iter().for_each(|place| out.size(*place));
            }
        }
    }
    out.varint(state.policy);
    out.varint(state.defaults);
    out.size(state.guests.len());
    for GuestState { generation, calls } in &state.guests {
        out.varint(*generation);
        out.varint(*calls);
    }
}

pub(crate) fn read_policy(read: &mut In<'_>) -> Read<(String, PolicySpec, PolicyState)> {
    let label = read.text()?;
    let told = read_told(read)?;
    let names = ExtraNames { signals: read.texts()?, headers: read.texts()? };
    let members: Vec<MemberSpec> = (0..read.size()?).map(|_| read_member(read)).collect::<Read<_>>()?;
    let layout = match read.byte()? {
        0 => Layout::Single(StageMode::Fused),
        1 => Layout::Single(StageMode::Separate),
        2 => {
            let (filters, scorers) = (read_places(read)?, read_places(read)?);
            Layout::Several { filters, scorers, picker: read_places(read)?.first().copied() }
        }
        _ => return Err(Malformed::new("a policy has an unknown layout")),
    };
    let (policy, defaults) = (read.varint()?, read.varint()?);
    let guests: Vec<GuestState> = (0..read.size()?)
        .map(|_| Ok(GuestState { generation: read.varint()?, calls: read.varint()? }))
        .collect::<Read<_>>()?;
    if guests.len() != members.len() {
        return Err(Malformed::new("a policy has not as many guests as instances"));
    }
    let state = PolicyState { policy, guests: guests.into(), defaults };
    Ok((label, PolicySpec { told, names, members, layout }, state))
}

fn read_places(read: &mut In<'_>) -> Read<Vec<usize>> {
    (0..read.size()?).map(|_| Ok(read.small()? as usize)).collect()
}

fn read_member(read: &mut In<'_>) -> Read<MemberSpec> {
    let (instance, digest, parameters, profile) = (read.text()?, read.text()?, read.text()?, read.text()?);
    let profile = Profile::from_name(&profile).ok_or_else(|| unknown("profile", &profile))?;
    let mut limits = Limits::of(profile);
    for _ in 0..read.size()? {
        let (key, value) = (read.text()?, read.varint()?);
        if !limits.set(&key, value) {
            return Err(unknown("limit", &key));
        }
    }
    let wasi = match read.byte()? {
        0 => false,
        1 => true,
        _ => return Err(Malformed::new("a policy neither imports WASI nor does not")),
    };
    let on_fault = OnFault { filter: read_action(read)?, otherwise: read_action(read)? };
    let digest = (!digest.is_empty()).then_some(digest);
    Ok(MemberSpec { instance, digest, parameters, limits, wasi, on_fault })
}

fn read_action(read: &mut In<'_>) -> Read<FaultAction> {
    let name = read.text()?;
    let actions = [FaultAction::Reject, FaultAction::Fallback, FaultAction::LastGood];
    actions.into_iter().find(|action| action.as_str() == name).ok_or_else(|| unknown("answer to a fault", &name))
}

fn unknown(what: &str, name: &str) -> Malformed {
    Malformed::new(format!("it names the unknown {what} `{name}`"))
}

fn write_told(out: &mut Out, told: &Told) {
    let Told { key: PartitionKey { model, routing_group, role }, block_size, seed, router_config, determinism } = told;
    out.text(model);
    out.text(routing_group);
    out.text(role.as_str());
    out.varint(u64::from(*block_size));
    out.varint(*seed);
    numbers_of(router_config).iter().for_each(|number| out.bits(*number));
    out.byte(u8::from(router_config.conditional_disaggregation));
    out.byte(u8::from(*determinism == Determinism::Portable));
}

fn read_told(read: &mut In<'_>) -> Read<Told> {
    let (model, routing_group, role) = (read.text()?, read.text()?, read.text()?);
    let role = Role::ALL.into_iter().find(|known| known.as_str() == role).ok_or_else(|| unknown("role", &role))?;
    let (block_size, seed) = (read.small()?, read.varint()?);
    let router_config = RouterConfig {
        overlap_score_credit: read.bits()?,
        overlap_score_credit_decay: read.bits()?,
        prefill_load_scale: read.bits()?,
        decode_active_request_weight: read.bits()?,
        host_cache_hit_weight: read.bits()?,
        disk_cache_hit_weight: read.bits()?,
        shared_cache_multiplier: read.bits()?,
        router_temperature: read.bits()?,
        conditional_disaggregation: read.byte()? != 0,
    };
    let determinism = if read.byte()? == 0 { Determinism::Fast } else { Determinism::Portable };
    Ok(Told { key: PartitionKey { model, routing_group, role }, block_size, seed, router_config, determinism })
}

/// In the order of the record's fields.
const fn numbers_of(config: &RouterConfig) -> [f64; 8] {
    [
        config.overlap_score_credit,
        config.overlap_score_credit_decay,
        config.prefill_load_scale,
        config.decode_active_request_weight,
        config.host_cache_hit_weight,
        config.disk_cache_hit_weight,
        config.shared_cache_multiplier,
        config.router_temperature,
    ]
}

/// The inputs of a decision; `last` are those of the one before it in the frame.
pub(crate) fn write_snapshot(out: &mut Out, snapshot: &Snapshot, last: Option<&Snapshot>) {
    match last.filter(|last| last.keys == snapshot.keys && last.numbers == snapshot.numbers) {
        Some(_) => out.varint(0),
        None => {
            out.size(snapshot.keys.len());
            let mut before = (0, 0);
            for (key, number) in snapshot.keys.iter().zip(snapshot.numbers.iter()) {
                out.signed(key.worker.wrapping_sub(before.0) as i64);
                out.varint(u64::from(key.rank));
                out.signed(i64::from(*number) - before.1);
                before = (key.worker, i64::from(*number));
            }
        }
    }
    for (place, fact) in snapshot.facts.iter().enumerate() {
        out.number(*fact, last.and_then(|last| last.facts.get(place)).copied().unwrap_or_default());
    }
    for (place, text) in snapshot.texts.iter().enumerate() {
        match text {
            None => out.byte(0),
            Some(_) if last.and_then(|last| last.texts.get(place)) == Some(text) => out.byte(1),
            Some(text) => {
                out.byte(2);
                out.text(text);
            }
        }
    }
    for (place, column) in snapshot.columns.iter().enumerate() {
        let before = last.and_then(|last| last.columns.get(place));
        match column {
            Column::Constant(value) => {
                out.byte(0);
                out.number(*value, 0.0);
            }
            Column::Values(values) => {
                out.byte(1);
                for (row, value) in values.iter().enumerate() {
                    out.number(*value, base(before, row));
                }
            }
        }
    }
    match &snapshot.affinity {
        None => out.varint(0),
        Some(rows) => {
            out.varint(1 + u64::from(rows.start));
            out.varint(rows.len() as u64);
        }
    }
}

fn base(before: Option<&Column>, row: usize) -> f64 {
    before.map_or(0.0, |column| column.get(row))
}

pub(crate) fn read_snapshot(read: &mut In<'_>, names: &Arc<ExtraNames>, last: Option<&Snapshot>) -> Read<Snapshot> {
    let (keys, numbers) = match (read.size()?, last) {
        (0, Some(last)) => (Arc::clone(&last.keys), Arc::clone(&last.numbers)),
        (0, None) => return Err(Malformed::new("a decision has no row")),
        (rows, _) if rows > MOST_ROWS => return Err(Malformed::new("a decision has more rows than can be")),
        (rows, _) => read_rows(read, rows)?,
    };
    let rows = keys.len();
    let facts = (0..Fact::COUNT)
        .map(|place| read.number(last.and_then(|last| last.facts.get(place)).copied().unwrap_or_default()))
        .collect::<Read<_>>()?;
    let texts = (0..Text::COUNT + names.headers.len())
        .map(|place| match read.byte()? {
            0 => Ok(None),
            1 => match last.and_then(|last| last.texts.get(place)) {
                Some(Some(text)) => Ok(Some(text.clone())),
                _ => Err(Malformed::new("a text repeats one that is not there")),
            },
            _ => read.text().map(Some),
        })
        .collect::<Read<_>>()?;
    let columns = (0..Signal::COUNT + names.signals.len())
        .map(|place| match read.byte()? {
            0 => read.number(0.0).map(Column::Constant),
            _ => {
                let before = last.and_then(|last| last.columns.get(place));
                let values = (0..rows).map(|row| read.number(base(before, row))).collect::<Read<Vec<f64>>>()?;
                Ok(Column::Values(values.into()))
            }
        })
        .collect::<Read<_>>()?;
    let affinity = match read.varint()? {
        0 => None,
        first => {
            let (first, end) = (first - 1, (first - 1).saturating_add(read.varint()?));
            if end > rows as u64 {
                return Err(Malformed::new("an affinity target lies outside the rows"));
            }
            Some(first as u32..end as u32)
        }
    };
    Ok(Snapshot { keys, numbers, facts, texts, columns, affinity, names: Arc::clone(names) })
}

type KeysAndNumbers = (Arc<[WorkerKey]>, Arc<[u32]>);

fn read_rows(read: &mut In<'_>, rows: usize) -> Read<KeysAndNumbers> {
    let (mut keys, mut numbers) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
    let mut before = (0_u64, 0_i64);
    for _ in 0..rows {
        let worker = before.0.wrapping_add(read.signed()? as u64);
        let key = WorkerKey::new(worker, read.small()?);
        let number = before.1.wrapping_add(read.signed()?);
        keys.push(key);
        numbers.push(u32::try_from(number).map_err(|_| Malformed::new("a row's number has more than 32 bits"))?);
        before = (worker, number);
    }
    if !keys.is_sorted_by(|left, right| left < right) {
        return Err(Malformed::new("the rows of a decision are not sorted"));
    }
    Ok((keys.into(), numbers.into()))
}

/// How a decision ended, and how far the policy then was; `before` says how far it was.
pub(crate) fn write_end(
    out: &mut Out,
    ended: Result<SnapshotDecision, &str>,
    before: &PolicyState,
    after: &PolicyState,
) {
    match ended {
        Ok(SnapshotDecision { row, cost, outcome, fallback, fuel }) => {
            out.byte(1 + u8::from(fallback));
            out.varint(u64::from(row));
            out.number(cost, 0.0);
            out.text(if outcome == Outcome::Ok { "" } else { outcome.as_str() });
            out.varint(fuel.map_or(0, |fuel| fuel.saturating_add(1)));
        }
        Err(name) => {
            out.byte(0);
            out.text(name);
        }
    }
    out.varint(after.defaults.wrapping_sub(before.defaults));
    for (before, after) in before.guests.iter().zip(&after.guests) {
        if before.generation == after.generation {
            out.varint(after.calls.wrapping_sub(before.calls) << 1);
        } else {
            out.varint(after.generation.wrapping_sub(before.generation) << 1 | 1);
            out.varint(after.calls);
        }
    }
}

pub(crate) fn read_end(read: &mut In<'_>, rows: u32, before: &PolicyState) -> Read<(Ended, PolicyState)> {
    let ended = match read.byte()? {
        0 => Err(read.text()?),
        by => {
            let (row, cost, name, fuel) = (read.small()?, read.number(0.0)?, read.text()?, read.varint()?);
            let outcome = match name.as_str() {
                "" => Outcome::Ok,
                name => outcome_of(name).ok_or_else(|| unknown("outcome", name))?,
            };
            if row >= rows {
                return Err(Malformed::new("a decision chose a row that is not there"));
            }
            Ok(SnapshotDecision { row, cost, outcome, fallback: by > 1, fuel: fuel.checked_sub(1) })
        }
    };
    let mut after = before.clone();
    after.defaults = after.defaults.wrapping_add(read.varint()?);
    for guest in &mut after.guests {
        match read.varint()? {
            calls if calls & 1 == 0 => guest.calls = guest.calls.wrapping_add(calls >> 1),
            generations => {
                *guest =
                    GuestState { generation: guest.generation.wrapping_add(generations >> 1), calls: read.varint()? };
            }
        }
    }
    Ok((ended, after))
}

/// The outcome of that name.
pub(crate) fn outcome_of(name: &str) -> Option<Outcome> {
    Outcome::ALL.into_iter().find(|outcome| outcome.as_str() == name)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn number(random: &mut fastrand::Rng) -> f64 {
        match random.u8(0..5) {
            0 => f64::from_bits(0x7ff8_0000_0000_0000),
            1 => random.f64() * 1e9,
            2 => f64::from_bits(random.u64(..)),
            _ => f64::from(random.u16(..)),
        }
    }

    fn snapshot(random: &mut fastrand::Rng, names: &Arc<ExtraNames>, last: Option<&Snapshot>) -> Snapshot {
        let rows = random.usize(1..40);
        let mut keys: Vec<WorkerKey> = (0..rows).map(|_| WorkerKey::new(random.u64(..), random.u32(..))).collect();
        keys.sort_unstable();
        let same = last.filter(|_| random.bool());
        let keys: Arc<[WorkerKey]> = same.map_or_else(|| keys.into(), |last| Arc::clone(&last.keys));
        let rows = keys.len();
        let text = |random: &mut fastrand::Rng| match random.u8(0..3) {
            0 => None,
            1 => Some("the same each time".to_owned()),
            _ => Some((0..random.usize(..9)).map(|_| random.char(..)).collect()),
        };
        let column = |random: &mut fastrand::Rng| match random.u8(0..3) {
            0 => Column::Constant(number(random)),
            _ => Column::Values((0..rows).map(|_| number(random)).collect()),
        };
        let first = random.u32(0..=rows as u32);
        Snapshot {
            numbers: same.map_or_else(|| (0..rows).map(|_| random.u32(..)).collect(), |last| Arc::clone(&last.numbers)),
            facts: (0..Fact::COUNT).map(|_| number(random)).collect(),
            texts: (0..Text::COUNT + names.headers.len()).map(|_| text(random)).collect(),
            columns: (0..Signal::COUNT + names.signals.len()).map(|_| column(random)).collect(),
            affinity: random.bool().then(|| first..random.u32(first..=rows as u32)),
            keys,
            names: Arc::clone(names),
        }
    }

    /// NaNs of the same bits are the same here.
    fn bits(snapshot: &Snapshot) -> String {
        let column = |column: &Column| match column {
            Column::Constant(value) => vec![value.to_bits()],
            Column::Values(values) => values.iter().map(|value| value.to_bits()).collect(),
        };
        let facts: Vec<u64> = snapshot.facts.iter().map(|fact| fact.to_bits()).collect();
        let columns: Vec<Vec<u64>> = snapshot.columns.iter().map(column).collect();
        let Snapshot { keys, numbers, texts, affinity, names, .. } = snapshot;
        format!("{keys:?} {numbers:?} {facts:?} {texts:?} {columns:?} {affinity:?} {names:?}")
    }

    #[test]
    fn inputs_come_back_to_the_bit() {
        let mut random = fastrand::Rng::with_seed(1);
        let own = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let names = ExtraNames { signals: own(&["metric.queue", "label.zone"]), headers: own(&["x-tier"]) };
        let names = Arc::new(names);
        let mut last: Option<Snapshot> = None;
        for _ in 0..500 {
            let written = snapshot(&mut random, &names, last.as_ref());
            let mut out = Out::default();
            write_snapshot(&mut out, &written, last.as_ref());
            let mut read = In(&out.0);
            let found = read_snapshot(&mut read, &names, last.as_ref()).unwrap();
            assert!(read.0.is_empty());
            assert_eq!(bits(&found), bits(&written));
            last = Some(written);
        }
    }

    #[test]
    fn what_decides_and_how_it_ends_come_back() {
        let told = Told {
            key: PartitionKey { model: "m".to_owned(), routing_group: "g".to_owned(), role: Role::Decode },
            block_size: 64,
            seed: u64::MAX,
            router_config: RouterConfig { router_temperature: 0.7, ..RouterConfig::default() },
            determinism: Determinism::Portable,
        };
        let member = |instance: &str, digest: Option<&str>| MemberSpec {
            instance: instance.to_owned(),
            digest: digest.map(str::to_owned),
            parameters: r#"{"a":0.1}"#.to_owned(),
            limits: Limits { fuel_base: 7, ..Limits::of(Profile::Engine) },
            wasi: digest.is_some(),
            on_fault: OnFault { filter: FaultAction::Fallback, otherwise: FaultAction::LastGood },
        };
        let layout = Layout::Several { filters: vec![0, 1], scorers: Vec::new(), picker: Some(1) };
        let names = ExtraNames { signals: vec!["metric.a".to_owned()], headers: vec!["b".to_owned()] };
        let members = vec![member("one", Some("abc")), member("two", None)];
        let spec = PolicySpec { told, names, members, layout };
        let guests = [GuestState { generation: 3, calls: 9 }, GuestState { generation: 0, calls: 1 }];
        let before = PolicyState { policy: 5, guests: guests.into_iter().collect(), defaults: 2 };
        let mut out = Out::default();
        write_policy(&mut out, "label", &spec, &before);
        let found = read_policy(&mut In(&out.0)).unwrap();
        assert_eq!(found, ("label".to_owned(), spec, before.clone()));

        let mut after = before.clone();
        (after.guests[0], after.guests[1].calls, after.defaults) = (GuestState { generation: 5, calls: 0 }, 4, 3);
        let decided = |outcome, fallback, fuel| SnapshotDecision { row: 2, cost: -0.0, outcome, fallback, fuel };
        for ended in [
            Ok(decided(Outcome::Ok, false, Some(0))),
            Ok(decided(Outcome::Trap, true, None)),
            Ok(decided(Outcome::Trap, false, Some(7))),
            Err("all-eligible-workers-filtered"),
        ] {
            let mut out = Out::default();
            write_end(&mut out, ended, &before, &after);
            let found = read_end(&mut In(&out.0), 3, &before).unwrap();
            assert_eq!(found, (ended.map_err(str::to_owned), after.clone()));
            assert_eq!(
                found.0.map(|decided| decided.cost.to_bits()),
                ended.map(|_| (-0.0_f64).to_bits()).map_err(str::to_owned)
            );
            let beyond = read_end(&mut In(&out.0), 2, &before);
            assert_eq!(beyond.is_err(), ended.is_ok(), "a row that is not there");
        }
    }
}
