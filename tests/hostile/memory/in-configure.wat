;; attack: Grows its memory while it is configured.
;; expect: configure -> memory

;; in configure:
(drop (memory.grow (i32.const 1000))) (i32.const 4096)
