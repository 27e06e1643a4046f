;; attack: A core module of an older toolchain that imports the file system.
;; expect: load -> core-module

;; in file:
(module
  (import "wasi_snapshot_preview1" "fd_write" (func (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "_start")))
