;; attack: What it reads is neither given nor refused.
;; expect: configure -> bad-answer

;; in configure:
(i32.store (i32.const 4096) (i32.const 9)) (i32.const 4096)
