;; attack: A list of resolutions beyond its memory.
;; expect: on-tick -> bad-answer

;; in on-tick:
(call $list (i32.const 65536) (i32.const 1))
