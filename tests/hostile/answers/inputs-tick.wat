;; attack: Asks for a tick every millisecond without being a classifier.
;; expect: plan -> refused

;; in configure:
(i32.store (i32.const 4232) (i32.const 1))
(i32.store (i32.const 4236) (i32.const 1))
(i32.const 4096)
