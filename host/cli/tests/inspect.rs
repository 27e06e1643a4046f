//! `pointsman policy list` and `pointsman policy inspect`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper that fails fails its test")]

mod common;
#[cfg(feature = "wasi")]
#[path = "../../sandbox/tests/common/mod.rs"]
mod wasi_policy;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Stdio;

use common::{error, json, pointsman, run, sdk_policy, stdout};
#[cfg(feature = "wasi")]
use pointsman_sandbox::{Args, Artifact, CompiledPolicy, GuestSetup, GuestSlot, Limits, Sandbox, SandboxConfig};
use serde_json::json;

/// The keys of the outermost object, as they are printed.
fn keys(text: &str) -> Vec<&str> {
    let outermost = text.lines().filter_map(|line| line.strip_prefix("  \""));
    outermost.filter_map(|line| line.split('"').next()).collect()
}

#[test]
fn the_list_has_every_built_in_policy() {
    let listed = json(&run(["policy", "list", "--json"]));
    let names: Vec<&str> = listed.as_array().unwrap().iter().map(|policy| policy["name"].as_str().unwrap()).collect();
    let built_in: Vec<&str> = pointsman_policies::all().iter().map(|built_in| built_in.name).collect();
    assert_eq!(names, built_in);
    for policy in listed.as_array().unwrap() {
        assert!(!policy["description"].as_str().unwrap().is_empty(), "{policy}");
        assert!(!policy["stages"].as_array().unwrap().is_empty(), "{policy}");
    }
}

#[test]
fn the_fields_of_the_json_come_in_the_documented_order() {
    let order = [
        "name",
        "version",
        "description",
        "wit_version",
        "stages",
        "inputs",
        "parameters_schema",
        "imports",
        "profile",
        "limits",
        "size_bytes",
        "sha256",
        "selector",
    ];
    assert_eq!(keys(&stdout(&run(["policy", "inspect", "least-loaded", "--json"]))), order);
    let mut order = order.to_vec();
    order.push("inputs_reason");
    assert_eq!(keys(&stdout(&run(["policy", "inspect", sdk_policy().to_str().unwrap(), "--json"]))), order);
}

#[test]
fn compiled_code_is_kept_where_the_command_says() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("compiled");
    let inspect = |by_variable: bool| {
        let mut command = pointsman();
        command.args(["policy", "inspect"]).arg(sdk_policy());
        match by_variable {
            true => command.env("POINTSMAN_COMPILE_CACHE", &cache),
            false => command.arg("--compile-cache").arg(&cache),
        };
        command.output().unwrap()
    };
    let kept = || {
        let files = fs::read_dir(&cache).unwrap().map(|entry| entry.unwrap().path());
        let entries = files.filter(|path| path.extension().is_some_and(|end| end == "code"));
        entries.map(|path| fs::metadata(path).unwrap().ino()).collect::<Vec<u64>>()
    };
    let first = stdout(&inspect(false));
    let before = kept();
    assert_eq!(before.len(), 1);
    assert_eq!(stdout(&inspect(true)), first);
    assert_eq!(kept(), before, "it was written anew");
    fs::set_permissions(&cache, fs::Permissions::from_mode(0o777)).unwrap();
    let said = error(&inspect(false));
    assert!(said.contains("sandbox.compile.cache") && said.contains("chmod go-w"), "{said}");
}

#[test]
fn a_component_is_a_regular_file() {
    for path in ["/dev/zero", "/dev/null", "/tmp"] {
        let said = error(&run(["policy", "inspect", path]));
        assert!(said.starts_with(path) && said.contains("no regular file"), "{said}");
    }
}

#[test]
fn a_built_in_policy_is_inspected_by_name() {
    let found = json(&run(["policy", "inspect", "least-loaded", "--json"]));
    assert_eq!(found["name"], "least-loaded");
    assert_eq!(found["size_bytes"], pointsman_policies::get("least-loaded").unwrap().component.len());
    assert_eq!(found["parameters_schema"]["type"], "object");
    let text = stdout(&run(["policy", "inspect", "least-loaded"]));
    for part in
        [found["sha256"].as_str().unwrap(), "load.active-requests", "Imports     nothing", "Limits      none of"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[cfg(feature = "wasi")]
#[test]
fn each_import_is_told_with_what_it_lets_a_policy_do() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("prints.wasm");
    fs::write(&path, wasi_policy::Policy { imports_wasi: true, ..Default::default() }.bytes()).unwrap();
    let path = path.to_str().unwrap();
    let text = stdout(&run(["policy", "inspect", path]));
    for part in [
        "wasi:cli/stdout@0.2.6: writes to the policy's bounded log\n",
        "wasi:sockets/network@0.2.6: nothing: there is no network\n",
        "Needs       `limits: {profile: compact}`, `wasi: true`\n",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let found = json(&run(["policy", "inspect", path, "--json"]));
    assert_eq!(found["profile"], "compact");
    let random =
        json!({"name": "wasi:random/random@0.2.6", "grants": "draws numbers that grow from the partition's seed"});
    assert!(found["imports"].as_array().unwrap().contains(&random), "{found}");
}

#[test]
fn inputs_are_null_with_the_reason_where_required_parameters_are_not_given() {
    let policy = sdk_policy().to_str().unwrap();
    let found = json(&run(["policy", "inspect", policy, "--json"]));
    assert_eq!(found["inputs"], json!(null));
    assert!(found["inputs_reason"].as_str().unwrap().contains("max_active_requests"), "{found}");
    assert_eq!(found["stages"], json!(["filter", "score"]));
    let text = stdout(&run(["policy", "inspect", policy]));
    assert!(text.contains("not known without --parameters: "), "{text}");
    assert!(text.contains("max_active_requests (number, required) The most active requests"), "{text}");
}

#[test]
fn what_a_policy_reads_follows_parameters_and_role() {
    let signals = |arguments: &[&str]| {
        let mut all = vec!["policy", "inspect", "dynamo-default-cost-fn", "--json"];
        all.extend(arguments);
        json(&run(all))["inputs"]["score"]["signals"].to_string()
    };
    assert!(signals(&[]).contains("cache."));
    assert!(!signals(&["--role", "decode"]).contains("cache."), "plain decode does not look at the cache");
    assert!(!signals(&["--parameters", r#"{"overlap_score_credit": 0}"#]).contains("cache."));
}

#[test]
fn a_classifier_is_listed_and_inspected_as_one() {
    let listed = json(&run(["policy", "list", "--json"]));
    let stages = |name: &str| {
        let policy = listed.as_array().unwrap().iter().find(|policy| policy["name"] == name);
        policy.unwrap_or_else(|| panic!("{name} is not listed"))["stages"].clone()
    };
    for name in ["queue-budget", "max-in-flight", "session-serial"] {
        assert_eq!(stages(name), json!(["classify"]), "{name}");
    }
    let inspect = ["policy", "inspect", "queue-budget", "--parameters", r#"{"max_wait_ms": 2000}"#];
    let found = json(&run(inspect.into_iter().chain(["--json"])));
    assert_eq!(found["inputs"]["classify"]["facts"], json!(["request.now-ms", "request.ingress-ms"]));
    assert_eq!((&found["inputs"]["score"], &found["inputs"]["tick_ms"]), (&json!(null), &json!(null)));
    let text = stdout(&run(inspect));
    assert!(text.contains("Stages      classify\n"), "{text}");
    assert!(text.contains("reads request.now-ms, request.ingress-ms"), "{text}");
    for refused in ["0", "60001"] {
        let parameters = format!(r#"{{"max_wait_ms": {refused}}}"#);
        let said = error(&run(["policy", "inspect", "queue-budget", "--parameters", &parameters]));
        assert!(said.contains("max_wait_ms must be between 1 and 60000"), "{said}");
    }
}

#[test]
fn refused_parameters_name_the_key() {
    let refused =
        |policy: &str, parameters: &str| error(&run(["policy", "inspect", policy, "--parameters", parameters]));
    let sdk = sdk_policy().to_str().unwrap();
    assert!(refused(sdk, r#"{"max_active_requests": -1}"#).contains("max_active_requests must be at least 0"));
    assert!(
        refused(sdk, r#"{"max_active_requests": "many"}"#)
            .contains("max_active_requests: expected a number, found a string")
    );
    assert!(refused(sdk, r#"{"max": 1}"#).contains("unknown parameter `max`"));
    assert!(refused(sdk, "{}").contains("max_active_requests"), "given, and still wanting");
    assert!(refused("least-loaded", r#"{"max": NaN}"#).contains(r#"{"max": NaN}"#));
    assert!(refused("least-loaded", "[1]").contains("--parameters is not a JSON object"));
    let said = refused("dynamo-default-cost-fn", r#"{"router_temperature": -0.5}"#);
    assert!(said.contains("router_temperature"), "{said}");
}

#[test]
fn an_unknown_name_lists_those_available() {
    let said = error(&run(["policy", "inspect", "least-loded"]));
    assert!(said.contains("`least-loded`"), "{said}");
    for built_in in pointsman_policies::all() {
        assert!(said.contains(built_in.name), "{said}");
    }
    let said = error(&run(["policy", "inspect", "default"]));
    assert!(said.contains("dynamo-default-cost-fn"), "{said}");
}

#[test]
fn usage_errors_exit_with_2() {
    for arguments in [
        &["policy", "inspect"][..],
        &["policy", "inspect", "least-loaded", "--role", "cook"],
        &["policy", "run", "least-loaded"],
        &["nothing"],
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let inspect = ["policy", "inspect", "least-loaded"];
    let child = pointsman().args(inspect).stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{:?}", output.status);
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn logs_go_to_standard_error_when_asked_for() {
    let inspect = |filter: &str| {
        pointsman().args(["policy", "inspect", "least-loaded", "--json"]).env("RUST_LOG", filter).output().unwrap()
    };
    assert!(inspect("warn").stderr.is_empty());
    let traced = inspect("pointsman_sandbox=debug");
    assert!(String::from_utf8_lossy(&traced.stderr).contains("loaded"));
    assert_eq!(json(&traced)["name"], "least-loaded");
}

#[test]
fn a_path_is_taken_for_a_file_and_not_for_a_name() {
    let said = error(&run([Path::new("policy"), Path::new("inspect"), Path::new("./least-loaded")]));
    assert!(said.contains("./least-loaded cannot be read"), "{said}");
}
