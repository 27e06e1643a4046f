;; attack: Grows its memory when the host asks for room.
;; expect: score -> memory

;; in realloc:
(if (i32.eq (local.get $size) (i32.const 24)) (then (drop (memory.grow (i32.const 1000)))))
(call $bump (local.get $align) (local.get $size))
