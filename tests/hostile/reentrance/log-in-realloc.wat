;; attack: Calls the host while the host asks it for room.
;; expect: score -> trap
;; imports: log

;; in realloc:
(if (i32.eq (local.get $size) (i32.const 24)) (then (call $log (i32.const 2) (i32.const 1024) (i32.const 2))))
(call $bump (local.get $align) (local.get $size))
