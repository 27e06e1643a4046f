//! Resident memory of this process, as Linux counts it.

/// A line of `/proc/self/status`, in bytes.
fn status(key: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
    let kibibytes: u64 = line.trim_matches([':', ' ', '\t', 'k', 'B']).parse().unwrap();
    kibibytes << 10
}

/// Forgets the peak so far, where the kernel allows it; what is resident now.
pub(crate) fn start_peak() -> u64 {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
    status("VmRSS")
}

/// The most that was resident since.
pub(crate) fn peak() -> u64 {
    status("VmHWM")
}
