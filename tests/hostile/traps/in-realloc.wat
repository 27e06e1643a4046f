;; attack: `cabi_realloc` traps.
;; expect: score -> trap

;; in realloc:
(if (i32.eq (local.get $size) (i32.const 24)) (then unreachable))
(call $bump (local.get $align) (local.get $size))
