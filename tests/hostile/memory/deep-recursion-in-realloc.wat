;; attack: Recurses when the host asks for room.
;; expect: score -> trap

;; in core:
(func $deep (call $deep))

;; in realloc:
(if (i32.eq (local.get $size) (i32.const 24)) (then (call $deep)))
(call $bump (local.get $align) (local.get $size))
