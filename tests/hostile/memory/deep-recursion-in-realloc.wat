;; attack: Recurses when the host asks for room.
;; expect: score -> trap

;; in core:
(func $deep (call $deep))

;; in realloc:
(if (i32.eq (local.get $align) (i32.const 8)) (then (call $deep)))
(call $bump (local.get $align) (local.get $size))
