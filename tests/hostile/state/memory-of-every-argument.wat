;; attack: Never gives back the room for its arguments.
;; expect: score -> memory
;; calls: 4000
;; memory: 1

;; in realloc:
(call $bump (local.get $align) (i32.add (local.get $size) (i32.const 4096)))

;; in post-return:

