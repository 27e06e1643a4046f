;; attack: `cabi_realloc` never returns once it is asked for room for three numbers.
;; expect: score -> out-of-fuel

;; in realloc:
(if (i32.eq (local.get $size) (i32.const 24)) (then (loop $again (br $again)) (unreachable)))
(call $bump (local.get $align) (local.get $size))
