#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pointsman_fuzz::load_gate::run(data));
