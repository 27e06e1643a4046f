;; attack: Declares what a stage reads that it does not have.
;; expect: plan -> refused

;; in configure:
(i32.store (i32.const 4164) (i32.const 1))
(i32.const 4096)
