;; attack: `cabi_realloc` gives the host room at address -1.
;; expect: score -> bad-answer

;; in realloc:
(if (i32.eq (local.get $size) (i32.const 24)) (then (return (i32.const -1))))
(call $bump (local.get $align) (local.get $size))
