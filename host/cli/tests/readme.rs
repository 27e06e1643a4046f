//! Follows "write your own policy in five minutes" of the README to the letter.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;

const README: &str = include_str!("../../../README.md");

/// A fenced block: what stands behind the language, and the text.
struct Block {
    info: String,
    text: String,
}

/// The fenced blocks of the section with that heading.
fn blocks(heading: &str) -> Vec<Block> {
    let section = README.split("\n## ").find(|section| section.starts_with(heading)).unwrap();
    let mut blocks: Vec<Block> = Vec::new();
    let mut open = false;
    for line in section.lines() {
        match (line.strip_prefix("```"), open) {
            (Some(info), false) => blocks.push(Block { info: info.to_owned(), text: String::new() }),
            (None, true) => {
                let text = &mut blocks.last_mut().unwrap().text;
                text.push_str(line);
                text.push('\n');
            }
            _ => {}
        }
        open ^= line.starts_with("```");
    }
    blocks
}

#[test]
fn each_step_of_the_first_policy_works_as_written() {
    let folder = tempfile::tempdir().unwrap();
    let clone = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    std::os::unix::fs::symlink(&clone, folder.path().join("pointsman")).unwrap();
    let binary = Path::new(env!("CARGO_BIN_EXE_pointsman")).parent().unwrap();
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap());
    let (mut steps, mut files) = (0, 0);
    for Block { info, text } in blocks("Write your own policy in five minutes") {
        if let Some((_, name)) = info.split_once(" file=") {
            let file = folder.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
            files += 1;
        } else if info == "sh step" {
            let output = Command::new("bash")
                .args(["-euo", "pipefail", "-c", &text])
                .current_dir(folder.path())
                .env("PATH", &path)
                .env("CARGO_TARGET_DIR", common::tmp().join("readme"))
                .env_remove("RUSTFLAGS")
                .output()
                .unwrap();
            assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
            steps += 1;
        } else {
            assert_eq!(info, "sh path", "every block of the section is a step, a file or the path");
        }
    }
    assert_eq!((steps, files), (5, 3), "a step or a file of the section was lost");
}

#[test]
fn the_readme_names_every_command() {
    let help = String::from_utf8(common::run(["--help"]).stdout).unwrap();
    for command in ["serve", "replay", "policy", "config", "record"] {
        assert!(help.contains(command) && README.contains(&format!("`pointsman {command}")), "{command}");
    }
}
