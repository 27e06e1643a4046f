;; attack: Asks for 4 GiB in one step.
;; expect: score -> memory

;; in score:
(drop (memory.grow (i32.const 65535))) (unreachable)
