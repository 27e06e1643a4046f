;; WASI preview 1 for a policy's runtime, with nothing behind it: no files, no arguments, no environment, no waiting.
;; Output goes to the policy's log, a line at a time. The clock is a count of the times that it was looked at, and random
;; bytes are always the same: a policy takes time from `request.now-ms` and randomness from its partition's seed.
(module
  (import "env" "memory" (memory 0))
  (import "pointsman:policy/log@0.1.0" "log" (func $log (param $level i32) (param $start i32) (param $length i32)))

  (global $looks (mut i64) (i64.const 0))

  (func $no_sizes (param $count i32) (param $bytes i32) (result i32)
    (i32.store (local.get $count) (i32.const 0))
    (i32.store (local.get $bytes) (i32.const 0))
    (i32.const 0))
  (export "args_sizes_get" (func $no_sizes))
  (export "environ_sizes_get" (func $no_sizes))

  (func $none (param i32 i32) (result i32)
    (i32.const 0))
  (export "args_get" (func $none))
  (export "environ_get" (func $none))

  ;; A microsecond more each time, so that whoever waits for a moment sees it come.
  (func (export "clock_time_get") (param $clock i32) (param $precision i64) (param $out i32) (result i32)
    (global.set $looks (i64.add (global.get $looks) (i64.const 1000)))
    (i64.store (local.get $out) (global.get $looks))
    (i32.const 0))

  (func (export "clock_res_get") (param $clock i32) (param $out i32) (result i32)
    (i64.store (local.get $out) (i64.const 1000))
    (i32.const 0))

  (func (export "random_get") (param $start i32) (param $length i32) (result i32)
    (local $state i32)
    (local.set $state (i32.const 0x9e3779b9))
    (block $done
      (loop $next
        (br_if $done (i32.eqz (local.get $length)))
        (local.set $state (i32.add (i32.mul (local.get $state) (i32.const 1664525)) (i32.const 1013904223)))
        (i32.store8 (local.get $start) (i32.shr_u (local.get $state) (i32.const 24)))
        (local.set $start (i32.add (local.get $start) (i32.const 1)))
        (local.set $length (i32.sub (local.get $length) (i32.const 1)))
        (br $next)))
    (i32.const 0))

  ;; Each piece is a message, without the line's end: warn from standard error, info from anything else.
  (func (export "fd_write") (param $fd i32) (param $pieces i32) (param $count i32) (param $out i32) (result i32)
    (local $start i32) (local $length i32) (local $written i32)
    (block $done
      (loop $next
        (br_if $done (i32.eqz (local.get $count)))
        (local.set $start (i32.load (local.get $pieces)))
        (local.set $length (i32.load offset=4 (local.get $pieces)))
        (local.set $written (i32.add (local.get $written) (local.get $length)))
        (if (local.get $length)
          (then
            (if (i32.eq (i32.load8_u (i32.sub (i32.add (local.get $start) (local.get $length)) (i32.const 1)))
                        (i32.const 10))
              (then (local.set $length (i32.sub (local.get $length) (i32.const 1)))))))
        (if (local.get $length)
          (then
            (call $log (select (i32.const 1) (i32.const 2) (i32.eq (local.get $fd) (i32.const 2)))
                       (local.get $start) (local.get $length))))
        (local.set $pieces (i32.add (local.get $pieces) (i32.const 8)))
        (local.set $count (i32.sub (local.get $count) (i32.const 1)))
        (br $next)))
    (i32.store (local.get $out) (local.get $written))
    (i32.const 0))

  ;; A terminal, so that output is not held back until an end that never comes.
  (func (export "fd_fdstat_get") (param $fd i32) (param $out i32) (result i32)
    (if (i32.gt_u (local.get $fd) (i32.const 2)) (then (return (i32.const 8))))
    (i64.store (local.get $out) (i64.const 2))
    (i64.store offset=8 (local.get $out) (i64.const 64))
    (i64.store offset=16 (local.get $out) (i64.const 0))
    (i32.const 0))

  ;; Whatever else is done to a file is done to none: the error is that of a descriptor that is not open.
  (func $bad_1 (param i32) (result i32) (i32.const 8))
  (func $bad_2 (param i32 i32) (result i32) (i32.const 8))
  (func $bad_3 (param i32 i32 i32) (result i32) (i32.const 8))
  (func $bad_4 (param i32 i32 i32 i32) (result i32) (i32.const 8))
  (func $bad_seek (param i32 i64 i32 i32) (result i32) (i32.const 8))
  (func $bad_open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32) (i32.const 8))
  (func $bad_stat (param i32 i32 i32 i32 i32) (result i32) (i32.const 8))
  (func $bad_link (param i32 i32 i32 i32 i32 i32) (result i32) (i32.const 8))
  (func $bad_size (param i32 i64) (result i32) (i32.const 8))
  (func $bad_times (param i32 i64 i64 i32) (result i32) (i32.const 8))
  (func $bad_readdir (param i32 i32 i32 i64 i32) (result i32) (i32.const 8))
  (func $bad_pio (param i32 i32 i32 i64 i32) (result i32) (i32.const 8))
  (export "fd_close" (func $bad_1))
  (export "fd_datasync" (func $bad_1))
  (export "fd_sync" (func $bad_1))
  (export "fd_fdstat_set_flags" (func $bad_2))
  (export "fd_filestat_get" (func $bad_2))
  (export "fd_prestat_get" (func $bad_2))
  (export "fd_renumber" (func $bad_2))
  (export "fd_tell" (func $bad_2))
  (export "fd_prestat_dir_name" (func $bad_3))
  (export "fd_read" (func $bad_4))
  (export "path_create_directory" (func $bad_3))
  (export "path_remove_directory" (func $bad_3))
  (export "path_unlink_file" (func $bad_3))
  (export "fd_seek" (func $bad_seek))
  (export "path_open" (func $bad_open))
  (export "path_filestat_get" (func $bad_stat))
  (export "path_symlink" (func $bad_stat))
  (export "path_readlink" (func $bad_link))
  (export "path_rename" (func $bad_link))
  (export "fd_filestat_set_size" (func $bad_size))
  (export "fd_filestat_set_times" (func $bad_times))
  (export "fd_readdir" (func $bad_readdir))
  (export "fd_pread" (func $bad_pio))
  (export "fd_pwrite" (func $bad_pio))

  ;; Nothing waits: all that was subscribed to is there. An event is 32 bytes, of which the user's data come first.
  (func (export "poll_oneoff") (param $in i32) (param $out i32) (param $count i32) (param $ready i32) (result i32)
    (i32.store (local.get $ready) (local.get $count))
    (block $done
      (loop $next
        (br_if $done (i32.eqz (local.get $count)))
        (i64.store (local.get $out) (i64.load (local.get $in)))
        (i64.store offset=8 (local.get $out) (i64.const 0))
        (i64.store offset=16 (local.get $out) (i64.const 0))
        (i64.store offset=24 (local.get $out) (i64.const 0))
        (i32.store8 offset=10 (local.get $out) (i32.load8_u offset=8 (local.get $in)))
        (local.set $in (i32.add (local.get $in) (i32.const 48)))
        (local.set $out (i32.add (local.get $out) (i32.const 32)))
        (local.set $count (i32.sub (local.get $count) (i32.const 1)))
        (br $next)))
    (i32.const 0))

  (func (export "sched_yield") (result i32)
    (i32.const 0))

  (func (export "proc_exit") (param $code i32)
    (unreachable)))
