;; attack: A list of numbers at an odd address.
;; expect: score -> bad-answer

;; in score:
(call $list (i32.const 8193) (i32.const 3))
