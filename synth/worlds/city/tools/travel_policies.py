"""The sentences of the travel policies: by topic, what they say in both languages, and between which values a seed draws their numbers.

A rule of thumb keeps them sound: numbers are far enough apart that an answer cannot be right by accident.
"""

from __future__ import annotations

POLICIES: dict[str, tuple[str, str, tuple[int, int, int], tuple[int, int, int]]] = {
    "pets_metro": (
        "Pets of up to {a} kg may ride the metro in a closed carrier; a loose pet costs its owner {b} yuan.",
        "体重不超过{a}公斤的宠物可装入封闭箱包乘坐地铁；未装箱者处以{b}元罚款。",
        (6, 12, 1), (50, 200, 10),
    ),
    "bikes_metro": (
        "Folding bikes with wheels of up to {a} inches are allowed on the metro, outside the {b} minutes around each rush hour's peak.",
        "轮径不超过{a}英寸的折叠车可以带入地铁，但早晚高峰前后{b}分钟内除外。",
        (14, 20, 2), (40, 90, 10),
    ),
    "luggage_train": (
        "A train passenger may carry {a} kg free of charge; no side of a bag may be longer than {b} cm.",
        "火车旅客可免费携带{a}公斤行李；任一边长不得超过{b}厘米。",
        (18, 30, 1), (110, 160, 5),
    ),
    "carry_on": (
        "Cabin baggage may weigh {a} kg and measure {b} cm in length, width and height together.",
        "随身行李重量不超过{a}公斤，长宽高之和不超过{b}厘米。",
        (5, 10, 1), (105, 130, 5),
    ),
    "checked_bags": (
        "Economy tickets include {a} kg of checked baggage; every further kilogram costs {b} yuan.",
        "经济舱免费托运行李额为{a}公斤；超出部分每公斤{b}元。",
        (15, 25, 1), (28, 60, 2),
    ),
    "liquids": (
        "Each liquid may fill {a} ml at most, and all of them together {b} ml in one clear bag.",
        "每件液体容器不得超过{a}毫升，总量不超过{b}毫升并装入一个透明袋。",
        (80, 120, 10), (800, 1500, 100),
    ),
    "power_banks": (
        "Power banks of up to {a} Wh are free to carry; beyond that the airline must agree, and above {b} Wh they stay behind.",
        "不超过{a}瓦时的充电宝可随身携带；超过需航空公司同意，超过{b}瓦时禁止携带。",
        (90, 110, 5), (150, 180, 5),
    ),
    "train_refund": (
        "Train tickets are refunded without a fee until {a} hours before departure; after that {b} percent are kept.",
        "开车前{a}小时以上退票不收手续费；之后收取票价的{b}%。",
        (48, 240, 24), (5, 20, 5),
    ),
    "train_change": (
        "A train ticket can be changed free of charge until {a} hours before departure; later changes cost {b} yuan.",
        "开车前{a}小时以上可免费改签；之后改签收取{b}元。",
        (24, 72, 12), (10, 45, 5),
    ),
    "flight_refund": (
        "Flight tickets returned {a} days ahead lose nothing; after that {b} percent of the fare are kept.",
        "提前{a}天退机票不收费；之后收取票价的{b}%。",
        (5, 14, 1), (20, 60, 5),
    ),
    "child_train": (
        "Children under {a} years ride trains free of charge; those up to {b} cm tall pay half price.",
        "{a}岁以下儿童免费乘火车；身高不超过{b}厘米的儿童购买半价票。",
        (4, 7, 1), (140, 160, 5),
    ),
    "child_flight": (
        "Children under {a} years pay {b} percent of the full air fare.",
        "{a}岁以下儿童购买成人全价{b}%的机票。",
        (10, 14, 1), (30, 60, 5),
    ),
    "student_train": (
        "Students get {a} percent off second-class seats, {b} single journeys a year.",
        "学生购买二等座可享{a}%优惠，每年{b}次单程。",
        (20, 35, 5), (4, 12, 2),
    ),
    "senior_metro": (
        "From the age of {a} the metro is free outside rush hours; the card costs {b} yuan once.",
        "年满{a}周岁者非高峰时段免费乘坐地铁；办卡费{b}元。",
        (60, 72, 2), (15, 40, 5),
    ),
    "drones": (
        "Drones must stay below {a} m and {b} m away from any airport or station.",
        "无人机飞行高度须低于{a}米，并与机场和车站保持{b}米距离。",
        (80, 150, 10), (1500, 6000, 500),
    ),
    "plate_limits": (
        "Cars with out-of-town plates may use the inner ring for {a} days a month; a violation costs {b} yuan.",
        "外地牌照车辆每月可在内环行驶{a}天；违规罚款{b}元。",
        (6, 15, 1), (100, 300, 50),
    ),
    "street_parking": (
        "The first {a} minutes at the kerb are free, then every hour begun costs {b} yuan.",
        "路边停车前{a}分钟免费，之后每小时{b}元，不足一小时按一小时计。",
        (10, 30, 5), (4, 12, 2),
    ),
    "e_bikes": (
        "Electric bikes may go {a} km/h; riding without a helmet costs {b} yuan.",
        "电动自行车限速每小时{a}公里；不戴头盔罚款{b}元。",
        (20, 30, 5), (50, 120, 10),
    ),
    "night_taxi": (
        "At night taxis add {a} percent to the fare; the base fare is {b} yuan.",
        "夜间出租车加收{a}%；起步价{b}元。",
        (20, 50, 5), (9, 16, 1),
    ),
    "visa_transit": (
        "Travellers of {a} countries may stay {b} hours in transit without a visa.",
        "{a}个国家的旅客可免签过境停留{b}小时。",
        (40, 60, 1), (72, 240, 24),
    ),
    "lost_property": (
        "Lost property is kept for {a} days; collecting it costs {b} yuan.",
        "失物保管{a}天；领取需付{b}元。",
        (20, 60, 5), (5, 15, 5),
    ),
    "camping": (
        "Camping in parks is allowed for {a} hours a visit, with tents of up to {b} cm in height.",
        "公园内每次可露营{a}小时，帐篷高度不超过{b}厘米。",
        (6, 12, 1), (130, 180, 10),
    ),
}  # fmt: skip
"""Topic -> English, Chinese, (low, high, step) of {a}, of {b}."""
