;; attack: The picker answers the row after the last.
;; expect: pick -> bad-answer

;; in pick:
(call $row (local.get $rows))
