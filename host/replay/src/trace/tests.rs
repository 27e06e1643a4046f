use super::*;

fn read(text: &str) -> Result<Trace, TraceError> {
    Trace::read("t", text.as_bytes(), None)
}

fn problem(text: &str) -> String {
    read(text).unwrap_err().to_string()
}

const ROW: &str = r#"{"timestamp": 5, "input_length": 600, "output_length": 7, "hash_ids": [3, 4]}"#;

/// A Mooncake row with one field replaced or added.
fn row(field: &str, value: &str) -> String {
    let mut row: serde_json::Map<String, serde_json::Value> = serde_json::from_str(ROW).unwrap();
    row.insert(field.to_owned(), serde_json::from_str(value).unwrap());
    serde_json::to_string(&row).unwrap()
}

#[test]
fn a_mooncake_row_is_read_whole() {
    let extras = r#"{"timestamp": 8.5, "input_length": 512, "output_length": 1, "hash_ids": [3], "session_id": "s",
        "parent_session_id": "p", "session_final": true, "input_trigger": "tool_result", "pinned_worker": 2, "priority": 1.5,
        "policy_class": "batch"}"#;
    let trace = read(&format!("\u{feff}\n{ROW}\r\n\n{}", extras.replace('\n', ""))).unwrap();
    assert_eq!(trace.len(), 2);
    assert_eq!(trace.blocks(), 3);
    let plain = trace.get(0).unwrap();
    assert_eq!(
        (plain.arrival_us, plain.input_tokens, plain.output_tokens, plain.block_ids),
        (5_000, 600, 7, &[3, 4][..])
    );
    assert_eq!((plain.session_id, plain.pinned_worker, plain.priority), (None, None, 0.0));
    let full = TraceRequest {
        arrival_us: 8_500,
        input_tokens: 512,
        output_tokens: 1,
        block_ids: &[3],
        session_id: Some("s"),
        parent_session_id: Some("p"),
        session_final: Some(true),
        input_trigger: Some(Trigger::ToolResult),
        pinned_worker: Some(2),
        priority: 1.5,
        policy_class: Some("batch"),
    };
    assert_eq!(trace.get(1), Some(full));
}

#[test]
fn an_azure_row_is_read_with_time_from_the_first_row() {
    let trace = read(
        "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:15:46.6805900,374,44\r\n2023-11-16 18:15:50.9951690,2000,109",
    )
    .unwrap();
    assert!(!trace.has_block_ids());
    let rows: Vec<_> = trace.requests().map(|row| (row.arrival_us, row.input_tokens, row.output_tokens)).collect();
    assert_eq!(rows, [(0, 374, 44), (4_314_579, 2000, 109)]);
    assert_eq!(trace.blocks(), 1 + 4);
}

#[test]
fn the_columns_of_a_csv_may_be_in_any_order() {
    let trace = read("GeneratedTokens,TIMESTAMP,ContextTokens\n4,2024-05-10 00:00:00.009930+00:00,9\n").unwrap();
    assert_eq!(trace.get(0).map(|row| (row.input_tokens, row.output_tokens)), Some((9, 4)));
}

#[test]
fn mooncake_problems_name_the_line_and_the_field() {
    let bad = |field: &str, value: &str| problem(&format!("{ROW}\n\n{}\n", row(field, value)));
    assert_eq!(bad("input_length", "-5"), "t line 3: `input_length` is -5; it must be a whole number of at least 0");
    assert_eq!(
        bad("output_length", "1.5"),
        "t line 3: `output_length` is 1.5; it must be a whole number of at least 0"
    );
    assert_eq!(bad("timestamp", "-1"), "t line 3: `timestamp` is -1; it must be a number of at least 0");
    assert_eq!(
        bad("timestamp", "1e300"),
        "t line 3: `timestamp` is 1e+300; at most 1000000000000 milliseconds are allowed"
    );
    assert_eq!(bad("hash_ids", "[3, -4]"), "t line 3: `hash_ids` is -4; it must be a whole number of at least 0");
    assert_eq!(bad("priority", "-0.5"), "t line 3: `priority` is -0.5; it must be a number of at least 0");
    assert_eq!(bad("input_length", "900000000"), "t line 3: `input_length` is 900000000; at most 100000000 is allowed");
    assert_eq!(bad("pinned_worker", "-1"), "t line 3: `pinned_worker` is -1; it must be a whole number of at least 0");
    assert_eq!(bad("input_length", "null"), "t line 3: `input_length` is missing");
    assert_eq!(
        bad("hash_ids", "[3]"),
        "t line 3: `hash_ids` has 1 id where a prompt of 600 tokens needs 2; give one for each block of 512 tokens"
    );
    assert_eq!(
        bad("hash_ids", "[]"),
        "t line 3: `hash_ids` has 0 ids where a prompt of 600 tokens needs 2; give one for each block of 512 tokens"
    );
    assert_eq!(
        bad("hash_ids", "[3, 3]"),
        "t line 3: `hash_ids` repeats 3; an id stands for a block and all blocks before it"
    );
    assert_eq!(bad("hash_ids", "null"), "t line 3: `hash_ids` is missing; give it to all requests or to none");
    assert_eq!(
        bad("timestamp", "4"),
        "t line 3: the timestamp is before that of the previous request; sort the trace by time"
    );
    assert_eq!(bad("session_final", "true"), "t line 3: `session_final` needs a `session_id` in the same request");
    assert_eq!(bad("session_id", "\"\""), "t line 3: `session_id` has 0 bytes; an id has 1 to 256");
    assert!(bad("outputs", "3").starts_with("t line 3: unknown field `outputs`, expected one of `timestamp`"));
    assert!(
        bad("input_trigger", "\"timer\"")
            .starts_with("t line 3: unknown variant `timer`, expected one of `user_message`")
    );
    assert!(bad("input_length", "\"600\"").starts_with("t line 3: invalid type: string"));
}

#[test]
fn a_row_without_block_ids_is_no_place_for_a_later_one_with_them() {
    let without = r#"{"timestamp": 0, "input_length": 600, "output_length": 7}"#;
    assert!(read(&format!("{without}\n{without}\n")).is_ok());
    assert_eq!(
        problem(&format!("{without}\n{ROW}\n")),
        "t line 2: this request has `hash_ids` and the ones before it have none; give them to all or to none"
    );
}

#[test]
fn an_empty_prompt_has_no_block_ids_and_changes_nothing_for_the_others() {
    let empty = r#"{"timestamp": 5, "input_length": 0, "output_length": 7, "hash_ids": []}"#;
    assert!(read(&format!("{empty}\n{ROW}\n{empty}\n{ROW}\n")).unwrap().has_block_ids());
    assert_eq!(
        problem(&row("hash_ids", "[]")),
        "t line 1: `hash_ids` has 0 ids where a prompt of 600 tokens needs 2; give one for each block of 512 tokens"
    );
    let without = r#"{"timestamp": 0, "input_length": 600, "output_length": 7}"#;
    assert_eq!(
        problem(&format!("{without}\n{empty}\n{ROW}\n")),
        "t line 3: this request has `hash_ids` and the ones before it have none; give them to all or to none"
    );
}

#[test]
fn a_request_s_place_is_its_line_in_the_file() {
    let trace = read(&format!("\n{ROW}\n \n\n{ROW}\n")).unwrap();
    assert_eq!([trace.place(0), trace.place(1)], ["t line 2", "t line 5"]);
    let row = "2023-11-16 18:15:46.5,374,44";
    let trace = read(&format!("TIMESTAMP,ContextTokens,GeneratedTokens\n{row}\n\n{row}")).unwrap();
    assert_eq!([trace.place(0), trace.place(1)], ["t line 2", "t line 4"]);
    assert_eq!(Trace::generated(0, 2).place(1), "request 1 of the generated trace (counted from 0)");
}

#[test]
fn csv_problems_name_the_line_and_the_column() {
    let head = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.5,374,44\n";
    let bad = |line: &str| problem(&format!("{head}{line}\n"));
    assert_eq!(
        bad("2023-11-16 18:15:47,-3,44"),
        "t line 3: `ContextTokens` is `-3`; it must be a whole number of at least 0"
    );
    assert_eq!(bad("2023-11-16 18:15:47,3,"), "t line 3: `GeneratedTokens` is missing");
    assert_eq!(bad("2023-11-16 18:15:47,3"), "t line 3: 2 fields where the header has 3");
    assert_eq!(
        bad("yesterday,3,4"),
        "t line 3: `TIMESTAMP` is `yesterday`; it must be a date and time such as 2023-11-16 18:15:46.6805900"
    );
    assert_eq!(
        bad("2023-11-16 18:15:46.4,3,4"),
        "t line 3: the timestamp is before that of the previous request; sort the trace by time"
    );
    assert_eq!(problem("TIMESTAMP,ContextTokens\n"), "t line 1: the column `GeneratedTokens` is missing");
    assert_eq!(
        problem("TIMESTAMP,ContextTokens,GeneratedTokens,Model\n"),
        "t line 1: unknown column `Model`, expected TIMESTAMP, ContextTokens, GeneratedTokens"
    );
}

#[test]
fn a_file_that_is_cut_off_says_so() {
    let cut = &ROW[..40];
    assert_eq!(
        problem(&format!("{ROW}\n{cut}")),
        "t line 2: the JSON ends in the middle of a request (column 40); the file seems to be cut off"
    );
    assert_eq!(
        problem("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.5,3"),
        "t line 2: 2 fields where the header has 3; the file seems to be cut off"
    );
}

#[test]
fn what_is_no_trace_is_refused() {
    assert_eq!(problem(""), "t holds no request; a trace needs at least one");
    assert_eq!(problem("\n \n"), "t holds no request; a trace needs at least one");
    assert_eq!(problem("TIMESTAMP,ContextTokens,GeneratedTokens\n"), "t holds no request; a trace needs at least one");
    assert!(problem("\nhello\n").starts_with("t line 2: this is neither a Mooncake trace"));
    assert!(problem("{\n").starts_with("t line 1: the JSON ends in the middle"));
    assert!(Trace::read("t", &b"\xff\xfe{}"[..], None).unwrap_err().to_string().contains("not UTF-8"));
    let long = format!("{{{}", " ".repeat(1 << 20));
    assert_eq!(problem(&format!("{long}x")), "t line 1: the line is longer than 1048576 bytes");
    let missing = Trace::open(Path::new("/no/such/trace"), None).unwrap_err();
    assert!(missing.to_string().starts_with("cannot read the trace /no/such/trace: "));
}

#[test]
fn a_limit_stops_before_what_comes_after_it() {
    let trace = Trace::read("t", format!("{ROW}\n{ROW}\nnonsense\n").as_bytes(), Some(2)).unwrap();
    assert_eq!(trace.len(), 2);
}

#[test]
fn a_generated_trace_is_the_same_everywhere() {
    use sha2::{Digest, Sha256};
    let digest = |seed, requests| {
        let mut hash = Sha256::new();
        for request in Trace::generated(seed, requests).requests() {
            hash.update(request.arrival_us.to_le_bytes());
            hash.update(request.input_tokens.to_le_bytes());
            hash.update(request.output_tokens.to_le_bytes());
            request.block_ids.iter().for_each(|id| hash.update(id.to_le_bytes()));
            hash.update(request.session_id.unwrap_or_default());
            hash.update(request.parent_session_id.unwrap_or_default());
            hash.update([
                u8::from(request.session_final == Some(true)),
                request.input_trigger.map_or(9, |trigger| trigger as u8),
            ]);
        }
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    assert_eq!(digest(0, 500), "53de7860646c8f3d0b680e0a1b77efc9a45803246289751eacb9955139f274bc");
    assert_ne!(digest(1, 500), digest(0, 500));
}

/// Found by fuzzing: what a sentence quoted could clear a terminal, forge further lines and fill a screen.
#[test]
fn a_problem_is_one_line_of_bounded_length() {
    let field = r#"{"timestamp": 0, "input_length": 1, "output_length": 1, "a\n\u001b[2J\u202e": 3}"#;
    let said = problem(field);
    assert!(said.starts_with(r"t line 1: unknown field `a\n\u{1b}[2J\u{202e}`, expected one of "), "{said}");
    let long = problem(&format!("TIMESTAMP,ContextTokens,GeneratedTokens\n{},1,2\n", "x".repeat(100_000)));
    assert!(long.len() < 1_100 && long.contains("xxx...xxx"), "{long}");
    assert!(long.starts_with("t line 2: `TIMESTAMP` is `xxx") && long.contains("it must be a date"), "{long}");
}

#[test]
fn a_generated_trace_shares_prefixes_as_conversations_do() {
    let trace = Trace::generated(0, GENERATED_REQUESTS);
    assert_eq!(trace.len(), GENERATED_REQUESTS);
    let mut seen: FxHashSet<u64> = FxHashSet::default();
    let (mut hits, mut arrival, mut sessions) = (0, 0, FxHashMap::default());
    for request in trace.requests() {
        assert!(request.arrival_us >= arrival);
        arrival = request.arrival_us;
        assert_eq!(request.block_ids.len() as u64, request.blocks());
        hits += request.block_ids.iter().take_while(|id| seen.contains(*id)).count() as u64;
        seen.extend(request.block_ids);
        let earlier = sessions.insert(request.session_id, request);
        if let Some(earlier) = earlier {
            let full = earlier.input_tokens as usize / BLOCK_SIZE as usize;
            assert_eq!(earlier.block_ids[..full], request.block_ids[..full], "a turn repeats the prompt so far");
            assert_eq!(earlier.session_final, Some(false));
        }
    }
    let rate = hits as f64 / trace.blocks() as f64;
    assert!((0.3..0.5).contains(&rate), "one unlimited cache would hit {rate}");
}

#[test]
fn a_row_that_is_no_object_is_refused_though_its_values_would_fit() {
    let list = format!("{ROW}\n[6, 600, 7, [3, 4], null, null, null, null, null, null]\n");
    assert!(problem(&list).starts_with("t line 2: a request must be a JSON object"), "{}", problem(&list));
}

#[test]
fn a_date_that_the_calendar_lacks_is_refused() {
    let read_row = |timestamp: &str, tokens: &str| {
        read(&format!("TIMESTAMP,ContextTokens,GeneratedTokens\n{timestamp},{tokens},7\n"))
    };
    for date in ["2023-02-29", "2023-02-30", "2023-04-31", "2023-11-00", "1900-02-29"] {
        let problem = read_row(&format!("{date} 18:15:46"), "5").unwrap_err().to_string();
        assert!(problem.starts_with("t line 2: `TIMESTAMP`"), "{date}: {problem}");
    }
    for time in ["23:59:60", "18:15:46+24:00", "18:15:46+01:60"] {
        assert!(read_row(&format!("2023-11-16 {time}"), "5").is_err(), "{time}");
    }
    assert!(read_row("2024-02-29 18:15:46+05:30", "5").is_ok());
    assert!(read_row("2023-11-16 18:15:46", "+5").unwrap_err().to_string().contains("`ContextTokens` is `+5`"));
}
