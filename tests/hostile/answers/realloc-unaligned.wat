;; attack: `cabi_realloc` gives the host room at an odd address.
;; expect: score -> bad-answer

;; in realloc:
(if (i32.eq (local.get $size) (i32.const 24)) (then (return (i32.const 3))))
(call $bump (local.get $align) (local.get $size))
