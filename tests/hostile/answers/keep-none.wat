;; attack: The filter rejects every worker: its right, and its own requests.
;; expect: keep -> filtered

;; in keep:
(call $list (i32.const 8192) (local.get $rows))
