;; attack: Refuses its parameters in what is no text.
;; expect: configure -> bad-answer

;; in configure:
(i32.store (i32.const 8192) (i32.const -1))
(call $error (i32.const 8192) (i32.const 4))
