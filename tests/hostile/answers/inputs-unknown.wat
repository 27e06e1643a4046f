;; attack: Reads what the host does not have.
;; expect: plan -> refused

;; in configure:
(i32.store8 (i32.const 4416) (i32.const 0x78))
(i32.const 4096)
