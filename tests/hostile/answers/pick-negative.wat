;; attack: The picker answers row -1.
;; expect: pick -> bad-answer

;; in pick:
(call $row (i32.const -1))
