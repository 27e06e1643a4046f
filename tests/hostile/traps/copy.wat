;; attack: Copies from beyond its memory.
;; expect: score -> trap

;; in score:
(memory.copy (i32.const 0) (i32.const 65000) (i32.const 1000)) (unreachable)
