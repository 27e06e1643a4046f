;; attack: 4 billion costs from address 0.
;; expect: score -> bad-answer

;; in score:
(call $list (i32.const 0) (i32.const -1))
