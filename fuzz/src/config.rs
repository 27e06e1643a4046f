//! The router-policy file.

use std::path::Path;

use pointsman_routing::config::PolicyConfig;
use pointsman_sandbox::LIMITS;

use super::check_sentence;

/// Any text is a configuration within its bounds, or a list of problems that name their lines.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match PolicyConfig::parse("policy.yaml", Path::new("/nowhere"), text) {
        Ok(config) => {
            for instance in config.worker_selection.iter().flat_map(|selection| &selection.instances) {
                let limits = instance.limits.resolve();
                assert!(LIMITS.iter().all(|row| limits.get(row.key).is_some_and(|value| value <= row.most)));
            }
        }
        Err(problems) => {
            let lines = text.split(['\n', '\r']).count();
            for problem in &problems {
                assert!(problem.line <= lines, "line {} of {lines}", problem.line);
                check_sentence(&problem.to_string());
            }
        }
    }
}
