//! A compile worker and nothing else, for embedders that cannot be one themselves.

fn main() -> std::process::ExitCode {
    pointsman_sandbox::init_compile_worker();
    eprintln!("error: this program compiles policies for a sandbox, which starts it with arguments of its own");
    std::process::ExitCode::FAILURE
}
