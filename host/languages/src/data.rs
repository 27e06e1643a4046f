//! A module's data in few segments.
//!
//! Go's linker leaves out every short run of zeros, and so writes tens of thousands of segments. A loader bounds their
//! number, and each costs a start.

use wasm_encoder::{ConstExpr, DataSection, Module, RawSection};
use wasmparser::{DataKind, Operator, Parser, Payload};

/// Two segments become one where no more zeros than these lie between them; a segment of its own takes some eight bytes
/// and a copy.
const GAP: usize = 32;

/// The module with neighbouring segments merged; as it was where it has data of another kind.
pub(crate) fn merged(module: Vec<u8>) -> Vec<u8> {
    rewritten(&module).unwrap_or(module)
}

fn rewritten(module: &[u8]) -> Option<Vec<u8>> {
    let segments = segments(module)?;
    let mut made = Module::new();
    for payload in Parser::new(0).parse_all(module) {
        match payload.ok()? {
            // The count belongs to instructions that name a segment, and such a module has other kinds.
            Payload::DataCountSection { .. } => {}
            Payload::DataSection(_) => {
                let mut section = DataSection::new();
                for (offset, bytes) in &segments {
                    section.active(0, &ConstExpr::i32_const(*offset as i32), bytes.iter().copied());
                }
                made.section(&section);
            }
            payload => {
                if let Some((id, range)) = payload.as_section() {
                    made.section(&RawSection { id, data: module.get(range)? });
                }
            }
        }
    }
    Some(made.finish())
}

/// Where a segment ends.
fn end((start, bytes): &(u32, Vec<u8>)) -> usize {
    *start as usize + bytes.len()
}

/// The merged segments, each with its place; none where the module has no data, or data that may not move.
fn segments(module: &[u8]) -> Option<Vec<(u32, Vec<u8>)>> {
    let mut merged: Vec<(u32, Vec<u8>)> = Vec::new();
    for payload in Parser::new(0).parse_all(module) {
        let Payload::DataSection(section) = payload.ok()? else { continue };
        for segment in section {
            let segment = segment.ok()?;
            let DataKind::Active { memory_index: 0, offset_expr } = segment.kind else { return None };
            let Operator::I32Const { value } = offset_expr.get_operators_reader().read().ok()? else { return None };
            let offset = value as u32;
            let (start, from) = (offset as usize, merged.last().map_or(0, end));
            let near = (from..=from + GAP).contains(&start);
            // A gap may hold what another segment, out of order, has put there.
            let free = || merged.iter().all(|one| start <= one.0 as usize || end(one) <= from);
            if near
                && free()
                && let Some((_, bytes)) = merged.last_mut()
            {
                bytes.resize(bytes.len() + start - from, 0);
                bytes.extend_from_slice(segment.data);
                continue;
            }
            merged.push((offset, segment.data.to_vec()));
        }
    }
    (!merged.is_empty()).then_some(merged)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_merged_and_nothing_else_moves() {
        let text = r#"(module (memory (export "memory") 1) (func (export "f") (result i32) (i32.const 7))
            (data (i32.const 8) "ab") (data (i32.const 12) "c") (data (i32.const 100) "d"))"#;
        let module = merged(wat::parse_str(text).unwrap_or_default());
        let expected = [(8, b"ab\0\0c".to_vec()), (100, b"d".to_vec())];
        assert_eq!(segments(&module).as_deref(), Some(&expected[..]));
        assert_eq!(Parser::new(0).parse_all(&module).filter(|payload| payload.is_err()).count(), 0);
    }

    #[test]
    fn a_gap_that_is_not_empty_stays() {
        let text = r#"(module (memory 1) (data (i32.const 3) "x") (data (i32.const 1) "b") (data (i32.const 5) "c"))"#;
        let module = wat::parse_str(text).unwrap_or_default();
        assert_eq!(segments(&module).map(|segments| segments.len()), Some(3));
    }

    #[test]
    fn data_that_instructions_name_stays() {
        let text = r#"(module (memory 1) (data $named "a") (data (i32.const 1) "b")
            (func (memory.init $named (i32.const 0) (i32.const 0) (i32.const 1))))"#;
        let module = wat::parse_str(text).unwrap_or_default();
        assert!(!module.is_empty());
        assert_eq!(merged(module.clone()), module);
    }
}
