;; attack: What it reads lies beyond its memory.
;; expect: configure -> bad-answer

;; in configure:
(i32.const 65535)
