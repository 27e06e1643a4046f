//! The readers of traces, in both formats.

use pointsman_replay::Trace;

use super::check_sentence;

/// Any bytes are a trace in order of time, or one sentence; deriving sessions gives every request one.
pub fn run(data: &[u8]) {
    let mut trace = match Trace::read("trace", data, Some(1_000)) {
        Ok(trace) => trace,
        Err(error) => return check_sentence(&error.to_string()),
    };
    assert!((1..=1_000).contains(&trace.len()));
    let arrivals: Vec<u64> = trace.requests().map(|request| request.arrival_us).collect();
    assert!(arrivals.is_sorted());
    for request in trace.requests().filter(|request| !request.block_ids.is_empty()) {
        assert_eq!(request.block_ids.len() as u64, request.blocks());
        assert!(request.priority.is_finite());
    }
    trace.derive_sessions();
    assert!(trace.requests().all(|request| request.session_id.is_some()));
    check_sentence(&trace.place(0));
}
