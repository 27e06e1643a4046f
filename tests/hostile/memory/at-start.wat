;; attack: Grows its memory in the start function.
;; expect: instantiate -> memory

;; in core:
(func $start (drop (memory.grow (i32.const 1000))))
(start $start)
