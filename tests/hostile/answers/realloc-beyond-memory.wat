;; attack: `cabi_realloc` gives the host room beyond its memory.
;; expect: score -> bad-answer

;; in realloc:
(if (i32.eq (local.get $size) (i32.const 24)) (then (return (i32.const 65536))))
(call $bump (local.get $align) (local.get $size))
